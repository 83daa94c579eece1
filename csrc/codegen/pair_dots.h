// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/product.h"

// The instruction that multiplies pairs of bf16 and adds both products to an f32, with the rounding
// of two multiply-adds: AVX512-BF16's vdpbf16ps. It takes and gives zeros for denormals, so it is
// used where eager does.

namespace hostjit {

// Whether eager computes the product with such instructions if the CPU has them.
bool is_in_pairs_for_eager(const Product& product);

// The product of the same matrices whose factors are pairs: neighbours along k. nullopt where the
// pairs of lhs are not neighbours in memory, k is odd, or eager has no pairs; the pairs of rhs may
// be from two rows.
std::optional<Product> in_pairs(const Product& product);

// `a` and `b` have a pair of bf16 in each i32, the lower half first; 16 lanes.
llvm::Value* multiply_add_pairs(llvm::IRBuilder<>& builder, llvm::Value* a, llvm::Value* b,
                                llvm::Value* sum);

}  // namespace hostjit
