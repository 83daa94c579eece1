// SPDX-License-Identifier: Apache-2.0
#include "codegen/pair_dots.h"

#include <llvm/IR/IntrinsicsX86.h>

namespace hostjit {

// Where ATen calls oneDNN. Its own loops for less keep denormals: one times an infinity is
// infinite.
bool is_in_pairs_for_eager(const Product& product) {
  constexpr int64_t kMostOfAten = 16 * 16 * 16;  // its mkldnn_gemm_min_size
  return product.dtype == DType::kBF16 && product.k != 0 &&
         product.batch * product.m * product.k * product.n > kMostOfAten;
}

std::optional<Product> in_pairs(const Product& product) {
  const bool reads_rhs = product.rhs.column_stride == 1 || product.rhs.row_stride == 1;
  if (product.k % 2 != 0 || product.lhs.column_stride != 1 || !reads_rhs ||
      !is_in_pairs_for_eager(product)) {
    return std::nullopt;
  }
  Product result = product;
  result.per_factor = 2;
  result.k /= 2;
  result.lhs.column_stride *= 2;
  result.rhs.row_stride *= 2;
  return result;
}

llvm::Value* multiply_add_pairs(llvm::IRBuilder<>& builder, llvm::Value* a, llvm::Value* b,
                                llvm::Value* sum) {
  constexpr llvm::Intrinsic::ID kInstruction = llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512;
  // Pairs are i32 in some versions of LLVM, and two bfloat in others.
  llvm::Type* pairs = llvm::Intrinsic::getType(builder.getContext(), kInstruction)->getParamType(1);
  return builder.CreateIntrinsic(
      kInstruction, {}, {sum, builder.CreateBitCast(a, pairs), builder.CreateBitCast(b, pairs)});
}

}  // namespace hostjit
