// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "codegen/product_emitter.h"
#include "codegen/product_plan.h"

namespace hostjit {

// A product whose rhs has contiguous rows: out[m, n..] += lhs[m, k] * rhs[k, n..]. A tile keeps its
// part of out in registers for all of k.
class ProductRows : public ProductEmitter {
 public:
  ProductRows(llvm::IRBuilder<>& builder, llvm::Function& function, const Product& product,
              unsigned vector_bits, const ProductTile& tile)
      : ProductEmitter(builder, function, product, vector_bits), tile_(tile) {}
  void emit();

 private:
  void emit_tile(llvm::Value* row, int64_t num_rows, llvm::Value* column, int64_t num_columns);

  ProductTile tile_;
};

}  // namespace hostjit
