// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "codegen/product.h"
#include "codegen/storage.h"

namespace hostjit {

enum class ProductMeans : uint8_t {
  kGenerated,  // ProductKernels
  kBlas,       // a call for each matrix, on raw pointers
  kAten,       // one call on tensors
  kFastest,    // that where oneDNN has the instruction of pair_dots.h, or else kGenerated
};

// Who does a product of f32, f64, bf16 or f16. Depends on nothing but the shapes and the memory, so
// that frames are the same for all machines.
// Whether generated code may write out while it reads the operands.
bool writes_apart(const Product& product, const StoragePlan& storage);

ProductMeans means_of(const Product& product, const StoragePlan& storage);

}  // namespace hostjit
