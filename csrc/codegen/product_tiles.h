// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <vector>

#include "codegen/product.h"

namespace hostjit {

// Emits one product into a function whose arguments are lhs, rhs, out and addend, tile by tile: a
// tile keeps its part of out in registers for all of k. Only additions along k are reassociated.
class ProductTiles {
 public:
  ProductTiles(llvm::IRBuilder<>& builder, llvm::Function& function, const Product& product,
               unsigned vector_bits);

  void emit();

 private:
  using Values = std::vector<llvm::Value*>;

  // Rows of rhs are contiguous: out[m, n..] += lhs[m, k] * rhs[k, n..].
  void emit_row_tile(llvm::Value* row, int64_t num_rows, llvm::Value* column, int64_t num_columns);
  // Columns of rhs are: out[m, n] = sum of lhs[m, k..] * rhs[k.., n], a register per element of
  // the tile, of which there are a register's lanes: `width` in a row.
  void emit_dot_tile(llvm::Value* row, int64_t num_rows, llvm::Value* column, int64_t num_columns,
                     int64_t width);
  // Element i of the result is the sum of the elements of vectors[i].
  llvm::Value* sum_each(Values vectors);
  // alpha * sums + beta * addend to out; `count` of the `width` lanes.
  void store(llvm::Value* sums, int64_t width, llvm::Value* row, llvm::Value* column,
             int64_t count);

  // f(first, size) for blocks of `block`, and for what is left over.
  void for_blocks(int64_t count, int64_t block,
                  const std::function<void(llvm::Value* first, int64_t size)>& f);
  // Runs `body(index, values)`, which gives the values of the next round, `count` times.
  Values reduce(int64_t count, Values values,
                const std::function<Values(llvm::Value* index, Values values)>& body);

  llvm::Value* element(const MatrixView& matrix, llvm::Value* base, llvm::Value* row,
                       llvm::Value* column);
  // `width` lanes of which the first `count` are read, the others 0.
  llvm::Value* load(llvm::Value* address, int64_t width, int64_t count);
  llvm::Value* load_scalar(llvm::Value* address);
  llvm::Value* multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* sum);
  llvm::Value* plus(llvm::Value* index, int64_t offset);
  llvm::VectorType* vector(int64_t width) const;
  llvm::Constant* mask(int64_t width, int64_t count) const;

  llvm::IRBuilder<>& builder_;
  const Product& product_;
  llvm::Value* lhs_;
  llvm::Value* rhs_;
  llvm::Value* out_;
  llvm::Value* addend_;
  int64_t bytes_;
  int64_t lanes_;
  llvm::Type* scalar_;
};

}  // namespace hostjit
