// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "ir/op.h"

// The matrix products of Host IR in one form, and what a BLAS can take of them.

namespace hostjit {

// A [batch, rows, columns] reading of a tensor; strides in elements.
struct MatrixView {
  const Value* value = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
};

// out[b] = alpha * lhs[b] @ rhs[b] + beta * addend[b]
struct Product {
  DType dtype = DType::kF32;
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  MatrixView lhs;  // [m, k]
  MatrixView rhs;  // [k, n]
  MatrixView out;  // [m, n]
  std::optional<MatrixView> addend = std::nullopt;
  double alpha = 1.0;
  double beta = 1.0;
  // Elements along k that are multiplied together, one of each operand or two. k and the strides
  // along k of lhs and rhs count these; all other strides count elements.
  int64_t per_factor = 1;
  // Denormal factors and sums are zeros, which pairs make them anyway.
  bool flushes_denormals = false;

  // The number of rows is an argument of the code, m an example of it for its plan.
  bool has_open_rows = false;

  bool is_in_pairs() const { return per_factor == 2; }
};

// Sums that a register has, which are f32 at least.
int64_t lanes_of_sums(const Product& product, unsigned vector_bits);

// nullopt when generated code leaves the op to ATen: other devices than the CPU and other dtypes
// than f32, f64, bf16 and f16, leading dims that no single stride walks, and operands that a BLAS
// can't take. The product may be of the transposes, when out is a column or column-major.
std::optional<Product> describe(const Matmul& op);
std::optional<Product> describe(const Linear& op);
std::optional<Product> describe(const Bmm& op);
std::optional<Product> describe(const Addmm& op);
std::optional<Product> describe(const Baddbmm& op);

// How a BLAS reads a matrix: one of the strides is 1, the other is the leading dimension.
struct BlasLayout {
  bool is_row_major = true;
  int64_t leading = 1;
};
std::optional<BlasLayout> blas_layout(int64_t rows, int64_t columns, const MatrixView& matrix);

// Of numbers that are not negative.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace hostjit
