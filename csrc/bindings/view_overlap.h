// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace hostjit {

// Where the elements of a tensor lie in its storage. Borrows sizes and strides.
struct StridedView {
  at::IntArrayRef sizes;
  at::IntArrayRef strides;
  int64_t offset;  // in elements
  int64_t itemsize;

  static StridedView of(const at::Tensor& tensor);
  bool empty() const;
  // In bytes: of the first element, and behind the last.
  int64_t begin() const { return offset * itemsize; }
  int64_t end() const;
};

// Whether two views of one storage may have a byte in common. Exact for those of one type that cut
// a tensor into rows, columns or blocks; errs to true for what reaches into each other's rows.
bool may_overlap(const StridedView& a, const StridedView& b);

}  // namespace hostjit
