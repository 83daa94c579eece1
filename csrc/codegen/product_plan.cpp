// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_plan.h"

#include <algorithm>

#include "codegen/half_floats.h"

// The constants were measured on one core of a Zen 5 (AVX-512, 48 KiB and 1 MiB of cache, 4.1 GHz,
// at most 265 GFLOPS of f32) with m, k and n in {1, 4, 16, 64, 256, 1024}, rhs by rows and by
// columns. Generated code does 200 to 260 GFLOPS from 16x16x16 on where sgemm of libtorch_cpu does
// at most 110, and is behind it nowhere.

namespace hostjit {
namespace {

// Of one panel, and of the panels at a time: they stay in the first and second level caches while
// the rows of lhs pass. They are on the stack, of which a thread may have little.
constexpr int64_t kPanelBytes = 48 << 10;
constexpr int64_t kPanelsBytes = 64 << 10;

// Rows of rhs that are further apart than this share cache sets and pages, and tiles walk down its
// columns.
constexpr int64_t kFarApart = 2048;
// One row that passes a matrix of more bytes reads long stretches of its rows.
constexpr int64_t kLargeMatrix = 256 << 10;

// Whether factors are converted before they are multiplied.
bool is_widened(const Product& product) {
  return is_half_float(product.dtype) && !product.is_in_pairs();
}

int64_t rhs_bytes(const Product& product) {
  return product.k * product.per_factor * product.n * size_in_bytes(product.dtype);
}

// In a register, where bf16 and f16 are f32 or in pairs.
int64_t factor_bytes(const Product& product) {
  return std::max<int64_t>(4, size_in_bytes(product.dtype));
}

// The largest block of [least, most] that divides `count`, or else blocks of about the same size:
// every other size of block is more code.
int64_t block_of(int64_t count, int64_t least, int64_t most) {
  for (int64_t block = most; block >= least; --block) {
    if (count % block == 0) return block;
  }
  return divide_up(count, divide_up(count, most));
}

ProductTile choose_tile(const Product& product, unsigned vector_bits, int64_t lanes) {
  const bool has_many_registers = vector_bits != 256;  // 32 with AVX-512 and NEON, or else 16
  // The other registers are for operands.
  const int64_t sums = has_many_registers ? 24 : 12;
  // A factor of lhs that is widened each time costs more than one of rhs, or of a panel.
  const int64_t most_rows = has_many_registers && !is_widened(product) ? 8 : 4;
  const int64_t bytes = factor_bytes(product);
  const bool is_long_read = product.m == 1 && rhs_bytes(product) > kLargeMatrix;
  ProductTile tile;
  tile.rows = block_of(product.m, most_rows / 2 + 1, most_rows);
  const int64_t most_vectors = std::min<int64_t>(sums / tile.rows, is_long_read ? 16 : 8);
  tile.vectors = block_of(divide_up(product.n, lanes), divide_up(most_vectors, 2), most_vectors);
  const int64_t columns = tile.vectors * lanes;
  const int64_t num_depths = divide_up(product.k, kPanelBytes / (columns * bytes));
  tile.depth = divide_up(divide_up(product.k, num_depths), lanes) * lanes;
  const int64_t num_panels = std::max<int64_t>(1, product.n / columns);
  const int64_t most_panels = kPanelsBytes / (columns * bytes * tile.depth);
  const int64_t panels = std::clamp<int64_t>(most_panels, 1, num_panels);
  tile.panels = divide_up(num_panels, divide_up(num_panels, panels));
  return tile;
}

// A copy of rows pays when they are awkward to read where they are and many rows of lhs pass.
bool rows_pay_packing(const Product& product, const ProductTile& tile) {
  const int64_t apart = product.rhs.row_stride / product.per_factor;
  const bool is_far = apart * size_in_bytes(product.dtype) > kFarApart;
  const bool is_half = is_half_float(product.dtype);
  if (is_half && product.m >= 32 && rhs_bytes(product) > kLargeMatrix) return true;
  if (is_far && product.m >= 64 && product.m * product.k >= 4096) return true;
  return product.m >= 256 && product.k > tile.depth && product.n > 64;
}

// Transposing columns costs as much as a few rows of lhs that pass. Dots waste lanes when there is
// little to sum, and sum their lanes in the end, which counts for less the more there is.
bool columns_pay_packing(const Product& product, int64_t lanes) {
  if (product.k < lanes) return product.m * product.n >= 16;
  if (product.n < lanes) return false;
  if (product.k == lanes) return product.m >= 4;
  return product.m >= 128 || (product.m >= 16 && product.k <= 8 * lanes);
}

bool reads_rows(const Product& product) { return product.rhs.column_stride == 1 || product.n == 1; }

// Whether the factors of a column of rhs are neighbours.
bool reads_columns(const Product& product) {
  return product.rhs.row_stride == product.per_factor || (product.k == 1 && !product.is_in_pairs());
}

// Whether those of a row of lhs are too.
bool has_dots(const Product& product) {
  return reads_columns(product) &&
         (product.lhs.column_stride == product.per_factor || product.k == 1);
}

}  // namespace

bool is_walkable(const Product& product) {
  const bool writes_rows = product.out.column_stride == 1 || product.n == 1;
  const bool adds_rows = !product.addend || product.addend->column_stride <= 1 || product.n == 1;
  return product.k != 0 && writes_rows && adds_rows &&
         (reads_rows(product) || reads_columns(product));
}

std::optional<ProductPlan> plan_product(const Product& product, unsigned vector_bits) {
  if (!is_walkable(product)) return std::nullopt;
  const int64_t lanes = lanes_of_sums(product, vector_bits);
  const ProductTile tile = choose_tile(product, vector_bits, lanes);
  const auto plan = [&](ProductForm form) { return ProductPlan{.form = form, .tile = tile}; };
  if (product.n == 1 && has_dots(product) && product.k >= lanes) return plan(ProductForm::kDots);
  if (reads_rows(product)) {
    return plan(rows_pay_packing(product, tile) ? ProductForm::kPacked : ProductForm::kRows);
  }
  const bool pays = !has_dots(product) || columns_pay_packing(product, lanes);
  return plan(pays ? ProductForm::kPacked : ProductForm::kDots);
}

}  // namespace hostjit
