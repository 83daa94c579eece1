// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "codegen/product.h"

namespace hostjit {

// What the forms of a generated product share: the function's arguments (lhs, rhs, out and addend),
// vectors of elements with tails, and loops that carry sums in registers. Only additions along k
// are reassociated. Sums of bf16 and f16 are f32 until they are rounded to out.
class ProductEmitter {
 public:
  ProductEmitter(llvm::IRBuilder<>& builder, llvm::Function& function, const Product& product,
                 unsigned vector_bits);

 protected:
  // Sums under way at the same time that hide the latency of a multiply-add.
  static constexpr int64_t kSumsInFlight = 8;

  using Values = std::vector<llvm::Value*>;
  using BlockBody = std::function<void(llvm::Value* first, int64_t size)>;
  using Factor = std::function<llvm::Value*(int64_t index)>;
  using Round = std::function<Values(llvm::Value* index, Values values)>;

  // f(first, size) for blocks of `block`, and for what is left over.
  void for_blocks(int64_t count, int64_t block, const BlockBody& f);
  // The same for the rows of lhs and out. What is left over of an open number is one block, or
  // several of powers of two, which is less code.
  enum class Rest : uint8_t { kOneBlock, kPowersOfTwo };
  void for_rows(int64_t block, Rest rest, const BlockBody& f);
  // Runs `round(index, values)`, which gives the values of the next round, `count` times. A count
  // that is no constant is at least 1.
  Values reduce(int64_t count, Values values, const Round& round);
  Values reduce(llvm::Value* count, Values values, const Round& round);

  // alpha * sums + beta * addend to out; `count` of the `width` lanes.
  void store_result(llvm::Value* sums, int64_t width, llvm::Value* row, llvm::Value* column,
                    int64_t count);
  llvm::Value* load_addend(int64_t width, llvm::Value* row, llvm::Value* column, int64_t count);
  llvm::Value* scaled(llvm::Value* value, double factor);

  llvm::Value* element(const MatrixView& matrix, llvm::Value* base, llvm::Value* row,
                       llvm::Value* column);

  // What multiply_add takes of lhs and rhs: numbers of the type of the sums, or pairs of elements.
  // These are `width` neighbours in memory of which the first `count` are read, the others 0.
  llvm::Value* load_factors(llvm::Value* address, int64_t width, int64_t count);
  // The same of one row of rhs, whose elements are neighbours.
  llvm::Value* load_rhs_row(llvm::Value* row, llvm::Value* column, int64_t width, int64_t count);
  // One of lhs in all lanes.
  llvm::Value* splat_factor(llvm::Value* address, int64_t width);
  llvm::Value* multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* sum);
  // sums[i * columns + j] += a(i) * b(j). The fewer of rows and columns are loaded first and stay
  // in registers, the others come one at a time: a tile whose sums leave few registers depends on
  // it.
  void add_outer_product(llvm::Value** sums, int64_t rows, int64_t columns, const Factor& a,
                         const Factor& b);

  llvm::Value* load(llvm::Type* type, llvm::Value* address, int64_t width, int64_t count);
  llvm::Value* splat(llvm::Value* element, int64_t width);
  // The first `count` of the `width` lanes.
  void store(llvm::Value* value, llvm::Value* address, int64_t width, int64_t count);
  llvm::Value* plus(llvm::Value* index, int64_t offset);

  llvm::Constant* zeros(llvm::Type* type, int64_t width) const;
  int64_t num_vectors(int64_t count) const { return (count + lanes_ - 1) / lanes_; }
  // How many of `count` elements are in vector `index`.
  int64_t lanes_of(int64_t index, int64_t count) const {
    return std::min(lanes_, count - index * lanes_);
  }

  llvm::IRBuilder<>& builder_;
  llvm::Function& function_;
  const Product& product_;
  llvm::Value* lhs_;
  llvm::Value* rhs_;
  llvm::Value* out_;
  llvm::Value* addend_;
  int64_t bytes_;  // of an element in memory
  int64_t lanes_;
  llvm::Type* sum_;
  llvm::Type* element_;  // in memory
  llvm::Type* factor_;   // in a register
};

}  // namespace hostjit
