// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "ir/type.h"
#include "runtime/abi.h"

namespace hostjit {

// A tensor that a program takes.
class ExpectedTensor {
 public:
  explicit ExpectedTensor(const TensorType& type);

  // True for these sizes and strides.
  bool has_shape_of(const at::Tensor& tensor) const {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    return impl->sizes() == at::IntArrayRef(type_.sizes) &&
           impl->strides() == at::IntArrayRef(type_.strides);
  }

  // Where the caller cannot be refused for another layout of it:
  // `tensor` itself, or a copy with the expected strides. Throws Error that begins with `what` for
  // another dtype, size or device, and for what is no plain strided tensor.
  at::Tensor conform(at::Tensor tensor, std::string_view what) const;

  at::Tensor zeros() const;
  // With any elements.
  at::Tensor make() const;

 private:
  bool has_strides(const at::Tensor& tensor) const;

  TensorSpec type_;
  int64_t bytes_;
  c10::ScalarType dtype_;
  c10::Device device_;
};

}  // namespace hostjit
