// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "codegen/storage.h"
#include "ir/op.h"

namespace hostjit {

// How a copy is done.
enum class CopyKind : uint8_t {
  kNothing,  // no elements
  kBytes,    // both contiguous, same dtype and sizes, apart: memcpy
  kLoops,    // same dtype, apart, small: inline loops over the sizes of out
  kLibrary,  // hostjit_copy on tensor headers
  kBySize,   // kLoops up to most_elements_of_loops, or else kLibrary: the row tells
};

CopyKind plan_copy(const TensorType& source, const Storage& source_storage, const TensorType& out,
                   const Storage& out_storage);

// Above so many elements of out, loops are behind the library.
int64_t most_elements_of_loops(const TensorType& source, const TensorType& out);

}  // namespace hostjit
