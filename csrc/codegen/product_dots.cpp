// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_dots.h"

#include <algorithm>
#include <bit>

#include "codegen/loop_nest.h"
#include "codegen/vector_transpose.h"

namespace hostjit {
namespace {

// Columns of rhs that one row walks at a time: few, so that memory is read nearly in its order.
constexpr int64_t kColumnsOfOneRow = 4;
// Vectors of k that a loop takes in one round.
constexpr int64_t kMostUnrolled = 4;

}  // namespace

void ProductDots::emit() {
  // As many rows as columns, or so: a tile loads the sum of them and multiplies their product.
  const int64_t rows = product_.m >= 4 && lanes_ >= 16 ? 4 : std::min<int64_t>(product_.m, 2);
  for_rows(rows, Rest::kOneBlock, [&](llvm::Value* row, int64_t num_rows) {
    const int64_t width = lanes_ / static_cast<int64_t>(std::bit_ceil<uint64_t>(num_rows));
    for_blocks(product_.n, width, [&](llvm::Value* column, int64_t num_columns) {
      emit_tile(row, num_rows, column, num_columns, width);
    });
  });
}

void ProductDots::emit_row(const Epilogue& epilogue) {
  llvm::Value* row = builder_.getInt64(0);
  const auto finish_before = [&](llvm::Value* column) {
    epilogue(builder_.CreateNUWSub(column, builder_.getInt64(lanes_)), column);
  };
  for_blocks(product_.n, lanes_, [&](llvm::Value* column, int64_t num_columns) {
    emit_tile(row, 1, column, num_columns, lanes_);
    if (const auto* first = llvm::dyn_cast<llvm::ConstantInt>(column)) {
      if (!first->isZero()) finish_before(column);
      return;
    }
    emit_if_else(
        builder_, builder_.CreateICmpNE(column, builder_.getInt64(0)),
        [&] { finish_before(column); }, [] {});
  });
  const int64_t last = (product_.n - 1) % lanes_ + 1;
  epilogue(builder_.getInt64(product_.n - last), builder_.getInt64(product_.n));
}

void ProductDots::emit_tile(llvm::Value* row, int64_t num_rows, llvm::Value* column,
                            int64_t num_columns, int64_t width) {
  const int64_t step = num_rows == 1 ? kColumnsOfOneRow : width;
  Values placed(lanes_, zeros(sum_, lanes_));
  for (int64_t first = 0; first < num_columns; first += step) {
    const int64_t count = std::min(step, num_columns - first);
    const Values dots = emit_dots(row, num_rows, plus(column, first), count);
    for (int64_t i = 0; i < num_rows; ++i) {
      for (int64_t j = 0; j < count; ++j) placed[i * width + first + j] = dots[i * count + j];
    }
  }
  llvm::Value* all = sum_each(builder_, std::move(placed));
  for (int64_t i = 0; i < num_rows; ++i) {
    llvm::SmallVector<int> lanes;
    for (int64_t j = 0; j < width; ++j) lanes.push_back(static_cast<int>(i * width + j));
    store_result(builder_.CreateShuffleVector(all, lanes), width, plus(row, i), column,
                 num_columns);
  }
}

ProductEmitter::Values ProductDots::emit_dots(llvm::Value* row, int64_t num_rows,
                                              llvm::Value* column, int64_t num_columns) {
  const int64_t num_sums = num_rows * num_columns;
  const auto step = [&](llvm::Value* k, int64_t count, int64_t part, Values& sums) {
    Values a;
    for (int64_t i = 0; i < num_rows; ++i) {
      a.push_back(load_factors(element(product_.lhs, lhs_, plus(row, i), k), lanes_, count));
    }
    for (int64_t j = 0; j < num_columns; ++j) {
      llvm::Value* b = load_factors(element(product_.rhs, rhs_, k, plus(column, j)), lanes_, count);
      for (int64_t i = 0; i < num_rows; ++i) {
        llvm::Value*& sum = sums[part * num_sums + i * num_columns + j];
        sum = multiply_add(a[i], b, sum);
      }
    }
  };
  const int64_t num_whole = product_.k / lanes_;
  const int64_t unroll = num_rows == 1 ? std::clamp<int64_t>(num_whole, 1, kMostUnrolled) : 1;
  // In a loop few sums would wait for each other; without one they meet those of other columns.
  const int64_t parts = num_rows == 1 && num_whole > unroll
                            ? std::clamp<int64_t>(kSumsInFlight / num_sums, 1, unroll)
                            : 1;
  Values sums(num_sums * parts, zeros(sum_, lanes_));
  sums = reduce(num_whole / unroll, sums, [&](llvm::Value* index, Values values) {
    llvm::Value* first = builder_.CreateNUWMul(index, builder_.getInt64(unroll * lanes_));
    for (int64_t v = 0; v < unroll; ++v) {
      step(plus(first, v * lanes_), lanes_, v % parts, values);
    }
    return values;
  });
  for (int64_t v = num_whole / unroll * unroll; v < num_whole; ++v) {
    step(builder_.getInt64(v * lanes_), lanes_, v % parts, sums);
  }
  const int64_t rest = product_.k - num_whole * lanes_;
  if (rest > 0) step(builder_.getInt64(num_whole * lanes_), rest, 0, sums);
  for (int64_t i = num_sums; i < num_sums * parts; ++i) {
    sums[i % num_sums] = builder_.CreateFAdd(sums[i % num_sums], sums[i]);
  }
  sums.resize(num_sums);
  return sums;
}

}  // namespace hostjit
