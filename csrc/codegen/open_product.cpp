// SPDX-License-Identifier: Apache-2.0
#include "codegen/open_product.h"

#include "codegen/product_means.h"
#include "codegen/product_plan.h"

namespace hostjit {
namespace {

// The strides inside of a matrix, whose last dims they are; nullopt where a symbol decides. A dim
// of one element broadcasts, or is not walked.
std::optional<MatrixView> matrix_of(const Value* value) {
  const TensorType& type = value->tensor_type();
  const size_t rank = type.dims.size();
  const auto stride = [&](size_t from_right) -> std::optional<int64_t> {
    if (from_right > rank || type.dims[rank - from_right] == Dim(1)) return 0;
    if (type.strides.empty()) {  // contiguous
      if (from_right == 1) return 1;
      const Dim& columns = type.dims[rank - 1];
      if (!columns.is_constant()) return std::nullopt;
      return columns.value;
    }
    const Dim& step = type.strides[rank - from_right];
    if (!step.is_constant()) return std::nullopt;
    return step.value;
  };
  const std::optional<int64_t> rows = stride(2);
  const std::optional<int64_t> columns = stride(1);
  if (!rows || !columns) return std::nullopt;
  return MatrixView{value, 0, *rows, *columns};
}

// Whether one stride walks all dims but the last.
bool is_one_matrix(const Value* value) {
  const TensorType& type = value->tensor_type();
  return type.rank() == 2 || type.is_contiguous();
}

bool is_symbolic(const Value* value) { return value && !value->tensor_type().is_static(); }

bool is_cpu_float(const Value* value) {
  const TensorType& type = value->tensor_type();
  return type.device.type == DeviceType::kCPU &&
         (type.dtype == DType::kF32 || type.dtype == DType::kF64);
}

struct Operands {
  const Value* lhs;
  const Value* rhs;
  const Value* out;
  const Value* bias = nullptr;
};

bool is_bias_of(const Value* bias, const Value* out) {
  const TensorType& type = bias->tensor_type();
  const TensorType& result = out->tensor_type();
  for (int64_t i = 1; i <= type.rank(); ++i) {
    const Dim& size = type.dims[type.rank() - i];
    if (size != Dim(1) && size != result.dims[result.rank() - i]) return false;
  }
  return is_cpu_float(bias);
}

// `rhs` is read as [k, n]: transposed for a linear layer.
std::optional<OpenProduct> describe_operands(const Operands& operands, bool transpose_rhs,
                                             const StoragePlan& storage) {
  const auto [lhs, rhs, out, bias] = operands;
  if (!is_symbolic(lhs) && !is_symbolic(rhs) && !is_symbolic(out) && !is_symbolic(bias)) {
    return std::nullopt;
  }
  for (const Value* value : {lhs, rhs, out}) {
    if (!is_cpu_float(value)) return std::nullopt;
  }
  if (bias && !is_bias_of(bias, out)) return std::nullopt;
  const auto a = matrix_of(lhs);
  auto b = matrix_of(rhs);
  const auto c = matrix_of(out);
  const auto addend = bias ? matrix_of(bias) : std::nullopt;
  if (!a || !b || !c || (bias && !addend)) return std::nullopt;
  if (transpose_rhs) std::swap(b->row_stride, b->column_stride);
  const std::vector<Dim>& sizes = out->tensor_type().dims;
  const Dim& k = lhs->tensor_type().dims.back();
  const Dim& n = sizes.back();
  // A column is better done as a row, which has no open number of rows.
  if (!k.is_constant() || !n.is_constant() || n.value < 2 || k.value < 1) return std::nullopt;
  const Dim& m = sizes[sizes.size() - 2];
  OpenProduct result;
  result.product = {.dtype = out->tensor_type().dtype,
                    .m = 1,
                    .n = n.value,
                    .k = k.value,
                    .lhs = *a,
                    .rhs = *b,
                    .out = *c,
                    .addend = addend};
  result.is_open = !m.is_constant();
  if (m.is_constant()) result.product.m = m.value;
  if (result.product.m == 0) return std::nullopt;
  if (!is_walkable(result.product) || !writes_apart(result.product, storage)) return std::nullopt;
  return result;
}

std::optional<OpenProduct> describe_sum(const auto& op, const StoragePlan& storage) {
  auto result = describe_operands({op.lhs, op.rhs, op.out, op.beta == 0.0 ? nullptr : op.bias},
                                  /*transpose_rhs=*/false, storage);
  if (!result) return result;
  result->product.alpha = op.alpha;
  result->product.beta = op.beta;
  return result;
}

}  // namespace

std::optional<OpenProduct> describe_open(const Matmul& op, const StoragePlan& storage) {
  return describe_operands({op.lhs, op.rhs, op.out}, /*transpose_rhs=*/false, storage);
}

std::optional<OpenProduct> describe_open(const Addmm& op, const StoragePlan& storage) {
  return describe_sum(op, storage);
}

std::optional<OpenProduct> describe_open(const Linear& op, const StoragePlan& storage) {
  if (op.out->tensor_type().rank() < 2 || !is_one_matrix(op.input) || !is_one_matrix(op.out)) {
    return std::nullopt;
  }
  auto result =
      describe_operands({op.input, op.weight, op.out, op.bias}, /*transpose_rhs=*/true, storage);
  if (!result) return result;
  // Leading dims are rows, too.
  result->is_open = true;
  if (op.input->tensor_type().rank() > 2) result->product.lhs.row_stride = result->product.k;
  if (op.out->tensor_type().rank() > 2) result->product.out.row_stride = result->product.n;
  return result;
}

std::optional<OpenProduct> describe_open(const Bmm& op, const StoragePlan& storage) {
  auto result = describe_operands({op.lhs, op.rhs, op.out}, /*transpose_rhs=*/false, storage);
  if (result) result->rows_are_collapsed = false;
  return result;
}

std::optional<OpenProduct> describe_open(const Baddbmm& op, const StoragePlan& storage) {
  auto result = describe_sum(op, storage);
  if (result) result->rows_are_collapsed = false;
  return result;
}

}  // namespace hostjit
