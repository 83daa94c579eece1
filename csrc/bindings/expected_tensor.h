// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "ir/type.h"
#include "runtime/abi.h"

namespace hostjit {

// A tensor that a program takes, where the caller cannot be refused for another layout of it.
class ExpectedTensor {
 public:
  explicit ExpectedTensor(const TensorType& type);

  // `tensor` itself, or a copy with the expected strides. Throws Error that begins with `what` for
  // another dtype, size or device, and for what is no plain strided tensor.
  at::Tensor conform(at::Tensor tensor, std::string_view what) const;

  at::Tensor zeros() const;

 private:
  bool has_strides(const at::Tensor& tensor) const;
  at::Tensor make() const;

  TensorSpec type_;
  int64_t bytes_;
  c10::ScalarType dtype_;
  c10::Device device_;
};

}  // namespace hostjit
