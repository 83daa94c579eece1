// SPDX-License-Identifier: Apache-2.0
#include "codegen/product.h"

#include <algorithm>
#include <vector>

#include "codegen/half_floats.h"

namespace hostjit {
namespace {

bool is_cpu_float(const TensorType& type) {
  return type.is_static() && type.device.type == DeviceType::kCPU &&
         (type.dtype == DType::kF32 || type.dtype == DType::kF64 || is_half_float(type.dtype));
}

MatrixView matrix(const Value* value) {
  const std::vector<int64_t> strides = value->tensor_type().static_strides();
  const size_t rank = strides.size();
  return {value, rank == 3 ? strides[0] : 0, strides[rank - 2], strides[rank - 1]};
}

// The strides of a tensor that broadcasts to [batch, rows, columns].
MatrixView broadcast_matrix(const Value* value) {
  const std::vector<int64_t> sizes = value->tensor_type().sizes();
  const std::vector<int64_t> strides = value->tensor_type().static_strides();
  const auto stride_from_right = [&](size_t position) -> int64_t {
    if (position > sizes.size()) return 0;
    const size_t dim = sizes.size() - position;
    return sizes[dim] == 1 ? 0 : strides[dim];
  };
  return {value, stride_from_right(3), stride_from_right(2), stride_from_right(1)};
}

// Reads [..., columns] as [rows, columns] when one stride walks all leading dims.
std::optional<MatrixView> collapse_leading_dims(const Value* value) {
  const std::vector<int64_t> sizes = value->tensor_type().sizes();
  const std::vector<int64_t> strides = value->tensor_type().static_strides();
  const size_t last = sizes.size() - 1;
  std::optional<int64_t> row_stride;
  int64_t expected = 0;
  for (size_t dim = last; dim-- > 0;) {
    if (sizes[dim] == 1) continue;
    if (!row_stride) {
      row_stride = strides[dim];
    } else if (strides[dim] != expected) {
      return std::nullopt;
    }
    expected = strides[dim] * sizes[dim];
  }
  return MatrixView{value, 0, row_stride.value_or(0), strides[last]};
}

MatrixView transposed(const MatrixView& matrix) {
  return {matrix.value, matrix.batch_stride, matrix.column_stride, matrix.row_stride};
}

// out^T = rhs^T @ lhs^T
Product transposed(const Product& product) {
  Product result = product;
  std::swap(result.m, result.n);
  result.lhs = transposed(product.rhs);
  result.rhs = transposed(product.lhs);
  result.out = transposed(product.out);
  if (product.addend) result.addend = transposed(*product.addend);
  return result;
}

std::optional<Product> accept(Product product) {
  // Generated code writes rows; one column is best done as one row.
  if (product.out.row_stride == 1 && (product.n == 1 || product.out.column_stride != 1)) {
    product = transposed(product);
  }
  for (const MatrixView* operand : {&product.lhs, &product.rhs, &product.out}) {
    if (!is_cpu_float(operand->value->tensor_type())) return std::nullopt;
  }
  if (product.addend && !is_cpu_float(product.addend->value->tensor_type())) return std::nullopt;
  if (!blas_layout(product.m, product.k, product.lhs) ||
      !blas_layout(product.k, product.n, product.rhs) ||
      !blas_layout(product.m, product.n, product.out)) {
    return std::nullopt;
  }
  return product;
}

bool all_static(std::initializer_list<const Value*> values) {
  return std::ranges::all_of(values, [](const Value* value) {
    return value == nullptr || value->tensor_type().is_static();
  });
}

Product plain_product(const Value* lhs, const Value* rhs, const Value* out) {
  const std::vector<int64_t> sizes = lhs->tensor_type().sizes();
  const size_t rank = sizes.size();
  return {.dtype = out->tensor_type().dtype,
          .batch = rank == 3 ? sizes[0] : 1,
          .m = sizes[rank - 2],
          .n = rhs->tensor_type().sizes()[rank - 1],
          .k = sizes[rank - 1],
          .lhs = matrix(lhs),
          .rhs = matrix(rhs),
          .out = matrix(out)};
}

std::optional<Product> describe_sum(const auto& op) {
  if (!all_static({op.bias, op.lhs, op.rhs, op.out})) return std::nullopt;
  Product product = plain_product(op.lhs, op.rhs, op.out);
  product.alpha = op.alpha;
  product.beta = op.beta;
  if (op.beta != 0.0) product.addend = broadcast_matrix(op.bias);
  return accept(product);
}

}  // namespace

std::optional<Product> describe(const Matmul& op) {
  if (!all_static({op.lhs, op.rhs, op.out})) return std::nullopt;
  return accept(plain_product(op.lhs, op.rhs, op.out));
}

std::optional<Product> describe(const Bmm& op) {
  if (!all_static({op.lhs, op.rhs, op.out})) return std::nullopt;
  return accept(plain_product(op.lhs, op.rhs, op.out));
}

std::optional<Product> describe(const Addmm& op) { return describe_sum(op); }

std::optional<Product> describe(const Baddbmm& op) { return describe_sum(op); }

std::optional<Product> describe(const Linear& op) {
  if (!all_static({op.input, op.weight, op.bias, op.out})) return std::nullopt;
  const TensorType& out_type = op.out->tensor_type();
  const std::vector<int64_t> weight_sizes = op.weight->tensor_type().sizes();
  if (out_type.rank() < 1 || weight_sizes.size() != 2) return std::nullopt;
  const std::optional<MatrixView> lhs = collapse_leading_dims(op.input);
  const std::optional<MatrixView> out = collapse_leading_dims(op.out);
  if (!lhs || !out) return std::nullopt;
  const std::vector<int64_t> weight_strides = op.weight->tensor_type().static_strides();
  const std::vector<int64_t> out_sizes = out_type.sizes();
  int64_t rows = 1;
  for (size_t dim = 0; dim + 1 < out_sizes.size(); ++dim) rows *= out_sizes[dim];
  std::optional<MatrixView> addend;
  if (op.bias) addend = broadcast_matrix(op.bias);
  return accept({.dtype = out_type.dtype,
                 .m = rows,
                 .n = weight_sizes[0],
                 .k = weight_sizes[1],
                 .lhs = *lhs,
                 .rhs = {op.weight, 0, weight_strides[1], weight_strides[0]},
                 .out = *out,
                 .addend = addend});
}

int64_t lanes_of_sums(const Product& product, unsigned vector_bits) {
  return static_cast<int64_t>(vector_bits) / (product.dtype == DType::kF64 ? 64 : 32);
}

std::optional<BlasLayout> blas_layout(int64_t rows, int64_t columns, const MatrixView& matrix) {
  const auto fits = [](int64_t step, int64_t extent, int64_t leading, int64_t count) {
    // A stride that is never taken may be any.
    return (step == 1 || extent <= 1) && (count <= 1 || leading >= std::max<int64_t>(1, extent));
  };
  const auto leading_dim = [](int64_t leading, int64_t extent) {
    return std::max({int64_t{1}, leading, extent});
  };
  if (fits(matrix.column_stride, columns, matrix.row_stride, rows)) {
    return BlasLayout{true, leading_dim(rows <= 1 ? 1 : matrix.row_stride, columns)};
  }
  if (fits(matrix.row_stride, rows, matrix.column_stride, columns)) {
    return BlasLayout{false, leading_dim(columns <= 1 ? 1 : matrix.column_stride, rows)};
  }
  return std::nullopt;
}

}  // namespace hostjit
