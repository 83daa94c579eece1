// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

// ATen's matrix products below the dispatcher where the process has them: on the CPU, and on CUDA
// devices if its PyTorch is built for them.

namespace hostjit {

void multiply(at::Tensor& out, const at::Tensor& lhs, const at::Tensor& rhs);
void multiply_batches(at::Tensor& out, const at::Tensor& lhs, const at::Tensor& rhs);

// out = beta * bias + alpha * lhs @ rhs.
void multiply_add(at::Tensor& out, const at::Tensor& bias, const at::Tensor& lhs,
                  const at::Tensor& rhs, const at::Scalar& beta, const at::Scalar& alpha);
void multiply_add_batches(at::Tensor& out, const at::Tensor& bias, const at::Tensor& lhs,
                          const at::Tensor& rhs, const at::Scalar& beta, const at::Scalar& alpha);

}  // namespace hostjit
