// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/abi.h"

// Tensors made without the dispatcher.

namespace hostjit {

// Bytes from the first to one past the last element; 0 for an empty tensor.
int64_t extent_in_bytes(const TensorSpec& type);

// A new, uninitialised CPU tensor of `bytes` = extent_in_bytes(type), such as empty_strided makes.
// Costs two thirds of at::detail::empty_strided_cpu, which computes and checks what `type` settles.
at::Tensor new_cpu_tensor(const TensorSpec& type, int64_t bytes);

// The same on a CUDA device, which is the current one.
at::Tensor new_cuda_tensor(const TensorSpec& type, int64_t bytes);

// A tensor of `type` over memory that somebody else owns and keeps alive.
at::Tensor tensor_over(void* data, const TensorSpec& type);

// Another shape of the memory of `source`, whose first element is `offset` elements after the
// first of `source`. Shares storage and version counter; autograd does not know that it is a view,
// so it is for tensors that nobody outside hostjit sees, and for those that are detached.
at::Tensor alias_of(const at::Tensor& source, at::IntArrayRef sizes, at::IntArrayRef strides,
                    int64_t offset);

// What a `view` makes of `source`; `offset` counts elements of `dtype`. A hidden one is as those of
// `alias_of`, and autograd knows that others are views.
at::Tensor view_of(const at::Tensor& source, at::ScalarType dtype, at::IntArrayRef sizes,
                   at::IntArrayRef strides, int64_t offset, bool is_hidden);

}  // namespace hostjit
