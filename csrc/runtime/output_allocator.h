// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include "runtime/block_cache.h"

namespace hostjit {

// The allocator of the tensors that programs make for their callers: PyTorch's own for CPU memory,
// with a BlockCache in front. Storages made with it may be resized, shared and stolen as any other.
//
// Where somebody replaced PyTorch's allocator, theirs. In builds with a sanitizer PyTorch's, so
// that every use of freed memory is seen.
c10::Allocator* output_allocator();

// The process's cache of output memory.
BlockCache& output_cache();

}  // namespace hostjit
