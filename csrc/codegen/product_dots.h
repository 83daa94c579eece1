// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "codegen/product_emitter.h"

namespace hostjit {

// A product whose lhs has contiguous rows and rhs contiguous columns:
// out[m, n] = sum of lhs[m, k..] * rhs[k.., n]. A tile has a register per element, of which there
// are a register's lanes; in the end their lanes are summed all at once.
class ProductDots : public ProductEmitter {
 public:
  using ProductEmitter::ProductEmitter;
  void emit();
  // Of one row: `epilogue(begin, end)` emits what is to be done with these columns of out when they
  // are there. It comes a tile behind, where its arithmetic fills the time that loads take.
  using Epilogue = std::function<void(llvm::Value* begin, llvm::Value* end)>;
  void emit_row(const Epilogue& epilogue);

 private:
  void emit_tile(llvm::Value* row, int64_t num_rows, llvm::Value* column, int64_t num_columns,
                 int64_t width);
  // A register per element of the tile, [row, column].
  Values emit_dots(llvm::Value* row, int64_t num_rows, llvm::Value* column, int64_t num_columns);
};

}  // namespace hostjit
