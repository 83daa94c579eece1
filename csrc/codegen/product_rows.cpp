// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_rows.h"

#include <algorithm>

namespace hostjit {

void ProductRows::emit() {
  for_rows(tile_.rows, Rest::kOneBlock, [&](llvm::Value* row, int64_t num_rows) {
    for_blocks(product_.n, tile_.vectors * lanes_, [&](llvm::Value* column, int64_t num_columns) {
      emit_tile(row, num_rows, column, num_columns);
    });
  });
}

void ProductRows::emit_tile(llvm::Value* row, int64_t num_rows, llvm::Value* column,
                            int64_t num_columns) {
  const int64_t vectors = num_vectors(num_columns);
  // Small tiles split k, so that enough sums are under way.
  const int64_t num_sums = num_rows * vectors;
  const int64_t unroll = std::clamp<int64_t>(kSumsInFlight / num_sums, 1, product_.k);
  const auto step = [&](llvm::Value* k, int64_t part, Values& sums) {
    const auto a = [&](int64_t i) {
      return splat_factor(element(product_.lhs, lhs_, plus(row, i), k), lanes_);
    };
    const auto b = [&](int64_t j) {
      return load_rhs_row(k, plus(column, j * lanes_), lanes_, lanes_of(j, num_columns));
    };
    add_outer_product(&sums[part * num_sums], num_rows, vectors, a, b);
  };
  Values sums(num_sums * unroll, zeros(sum_, lanes_));
  sums = reduce(product_.k / unroll, sums, [&](llvm::Value* index, Values values) {
    llvm::Value* first = builder_.CreateNUWMul(index, builder_.getInt64(unroll));
    for (int64_t part = 0; part < unroll; ++part) step(plus(first, part), part, values);
    return values;
  });
  for (int64_t k = product_.k / unroll * unroll; k < product_.k; ++k) {
    step(builder_.getInt64(k), k % unroll, sums);
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    for (int64_t j = 0; j < vectors; ++j) {
      llvm::Value* sum = sums[i * vectors + j];
      for (int64_t part = 1; part < unroll; ++part) {
        sum = builder_.CreateFAdd(sum, sums[part * num_sums + i * vectors + j]);
      }
      store_result(sum, lanes_, plus(row, i), plus(column, j * lanes_), lanes_of(j, num_columns));
    }
  }
}

}  // namespace hostjit
