// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/null_cuda.h"

namespace hostjit::cuda {

// Makes `null_cuda` PyTorch's allocator and device guard for CUDA, unless PyTorch has its own.
void register_with_torch(NullCuda& null_cuda);

}  // namespace hostjit::cuda
