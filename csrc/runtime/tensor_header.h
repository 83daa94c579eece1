// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/abi.h"

// Tensors made without the dispatcher.

namespace hostjit {

// A tensor of `type` over CPU memory that somebody else owns and keeps alive.
at::Tensor tensor_over(void* data, const TensorSpec& type);

// Another shape of the memory of `source`, whose first element is `offset` elements after the
// first of `source`. Shares storage and version counter; autograd does not know that it is a view,
// so it is for tensors that nobody outside hostjit sees.
at::Tensor alias_of(const at::Tensor& source, at::IntArrayRef sizes, at::IntArrayRef strides,
                    int64_t offset);

}  // namespace hostjit
