// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_blocks.h"

#include <algorithm>

// The speeds are near what one core of a Zen 5 was measured at, see product_plan.cpp. The least
// times were chosen, not searched: products just above them gain on two cores of it.

namespace hostjit {
namespace {

// Another thread costs half a microsecond while threads are awake, and more when they sleep.
constexpr double kNanosecondsPerThread = 5000;
// A block costs a call, which reads the operands anew.
constexpr double kNanosecondsPerBlock = 2000;
// In all matrices. Enough for an even share among a few threads, and many, among as many as
// machines have.
constexpr int64_t kEnoughBlocks = 16;
constexpr int64_t kManyBlocks = 128;

// A block of rows packs all of rhs again.
constexpr int64_t kRowsThatPayPacking = 128;
constexpr int64_t kRowsOfDots = 4;

// Per nanosecond of one thread.
constexpr double kMultiplyAddsPerLane = 8;
constexpr double kBytesRead = 64;

// Of one matrix, from the arithmetic and from reading an rhs that no cache of one core holds. Those
// of a batch were mostly computed just before, which sharing makes slower: on two cores of a Zen 4,
// each copy of 64 KiB into such an rhs took 20 us where another thread had read it, else 1.4.
double nanoseconds(const Product& product, int64_t lanes) {
  const double size = static_cast<double>(product.k) * static_cast<double>(product.n);
  const double bytes =
      product.batch > 1
          ? 0
          : size * static_cast<double>(product.per_factor * size_in_bytes(product.dtype));
  return size * static_cast<double>(product.m) /
             (kMultiplyAddsPerLane * static_cast<double>(lanes)) +
         bytes / kBytesRead;
}

// Columns or rows that a plan takes together anyway.
int64_t column_step(const ProductPlan& plan, int64_t lanes) {
  if (plan.form == ProductForm::kDots) return lanes;
  const int64_t panels = plan.form == ProductForm::kPacked ? plan.tile.panels : 1;
  return panels * plan.tile.vectors * lanes;
}

int64_t row_step(const ProductPlan& plan) {
  if (plan.form == ProductForm::kDots) return kRowsOfDots;
  const int64_t least = plan.form == ProductForm::kPacked ? kRowsThatPayPacking : 1;
  return divide_up(least, plan.tile.rows) * plan.tile.rows;
}

// Whole steps that take long enough, kManyBlocks or somewhat more if there are as many, and all of
// the same size if possible: another size is more code.
ProductBlocks divide(int64_t count, int64_t step, double nanoseconds_each, int64_t batch) {
  const int64_t num_steps = divide_up(count, step);
  const int64_t least = std::clamp<int64_t>(
      static_cast<int64_t>(kNanosecondsPerBlock / (nanoseconds_each * static_cast<double>(step))) +
          1,
      1, num_steps);
  const int64_t most = std::clamp<int64_t>(num_steps * batch / kManyBlocks, least, num_steps);
  int64_t steps = most;
  while (steps > least && num_steps % steps != 0) --steps;
  const int64_t size = std::min(count, steps * step);
  return {.size = size, .per_matrix = divide_up(count, size)};
}

}  // namespace

std::optional<ProductBlocks> divide_product(const Product& product, const ProductPlan& plan,
                                            unsigned vector_bits) {
  const int64_t lanes = lanes_of_sums(product, vector_bits);
  const double each = nanoseconds(product, lanes);
  if (each * static_cast<double>(product.batch) < 2 * kNanosecondsPerThread) return std::nullopt;
  const auto with_grain = [&](ProductBlocks blocks) -> std::optional<ProductBlocks> {
    if (blocks.per_matrix * product.batch == 1) return std::nullopt;
    const double block = each / static_cast<double>(blocks.per_matrix);
    blocks.grain = std::max<int64_t>(1, static_cast<int64_t>(kNanosecondsPerThread / block));
    return blocks;
  };
  if (product.batch >= kEnoughBlocks) return with_grain({.size = product.n});
  const auto is_even = [&](const ProductBlocks& blocks, int64_t count) {
    return count % blocks.size == 0 && blocks.per_matrix * product.batch >= kEnoughBlocks;
  };
  const ProductBlocks columns = divide(product.n, column_step(plan, lanes),
                                       each / static_cast<double>(product.n), product.batch);
  if (is_even(columns, product.n) || product.has_open_rows) return with_grain(columns);
  ProductBlocks rows =
      divide(product.m, row_step(plan), each / static_cast<double>(product.m), product.batch);
  rows.are_columns = false;
  const bool by_rows = is_even(rows, product.m) || rows.per_matrix > columns.per_matrix;
  return with_grain(by_rows ? rows : columns);
}

int64_t rows_per_thread(const Product& product, const ProductPlan& plan, unsigned vector_bits) {
  const double each =
      nanoseconds(product, lanes_of_sums(product, vector_bits)) / static_cast<double>(product.m);
  const auto rows = static_cast<int64_t>(kNanosecondsPerThread / each) + 1;
  return plan.form == ProductForm::kPacked ? std::max(rows, kRowsThatPayPacking) : rows;
}

Product block_of_product(const Product& product, const ProductBlocks& blocks, bool is_last) {
  Product block = product;
  int64_t& extent = blocks.are_columns ? block.n : block.m;
  extent = is_last ? extent - (blocks.per_matrix - 1) * blocks.size : blocks.size;
  block.batch = 1;
  return block;
}

}  // namespace hostjit
