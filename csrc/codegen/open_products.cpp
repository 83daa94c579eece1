// SPDX-License-Identifier: Apache-2.0
// Products of which the row knows the number of rows or of matrices.
#include "codegen/dispatcher.h"
#include "codegen/loop_nest.h"

namespace hostjit {
namespace {

// Few rows are done by code that reads rhs where it is, more by code that may copy it. On a Zen 5
// that is as fast as code for a known number of rows from 3 on, up to 1.35 times slower where the
// known number divides better, and 1.0 to 2.3 times slower for one or two rows.
constexpr int64_t kFewRows = 8;
constexpr int64_t kManyRows = 256;

// From so many rows on a copy pays: sooner when it transposes rhs.
int64_t first_of_many(const Product& product) { return product.rhs.column_stride == 1 ? 64 : 32; }

}  // namespace

llvm::Value* Dispatcher::num_rows(const OpenProduct& open) {
  const std::vector<Dim>& sizes = open.product.out.value->tensor_type().dims;
  if (!open.rows_are_collapsed) return dim(sizes[sizes.size() - 2]);
  llvm::Value* rows = integer(1);
  for (size_t i = 0; i + 1 < sizes.size(); ++i) rows = builder_.CreateMul(rows, dim(sizes[i]));
  return rows;
}

void Dispatcher::emit_open_product(const OpenProduct& open) {
  const Product& product = open.product;
  announce_write(product.out.value);
  llvm::Value* rows = num_rows(open);
  const auto emit_matrix = [&](llvm::Value* lhs, llvm::Value* rhs, llvm::Value* out,
                               llvm::Value* addend) {
    if (!open.is_open) {
      builder_.CreateCall(products_.get(product), {lhs, rhs, out, addend});
      return;
    }
    Product few = product;
    Product many = product;
    few.m = kFewRows;
    few.has_open_rows = true;
    many.m = kManyRows;
    emit_if_else(
        builder_, builder_.CreateICmpULT(rows, integer(first_of_many(product))),
        [&] {
          const auto shared = products_.get_shared(few);
          if (!shared) {
            builder_.CreateCall(products_.get_open(few), {lhs, rhs, out, addend, rows});
            return;
          }
          emit_parallel_call(shared->function, {lhs, rhs, out, addend, rows},
                             integer(shared->blocks.per_matrix), integer(shared->blocks.grain));
        },
        [&] {
          const ProductKernels::SharedRows shared = products_.get_open_shared(many);
          llvm::Value* tiles = builder_.CreateUDiv(
              builder_.CreateNUWAdd(rows, integer(shared.tile - 1)), integer(shared.tile));
          emit_parallel_call(shared.function, {lhs, rhs, out, addend, rows}, tiles,
                             integer(shared.grain));
        });
  };
  llvm::Value* lhs = data(product.lhs.value);
  llvm::Value* rhs = data(product.rhs.value);
  llvm::Value* out = data(product.out.value);
  llvm::Value* addend =
      product.addend ? data(product.addend->value) : llvm::Constant::getNullValue(pointer_);
  if (open.rows_are_collapsed) return emit_matrix(lhs, rhs, out, addend);
  const int64_t bytes = size_in_bytes(product.dtype);
  const auto batch_stride = [&](const MatrixView& view) -> llvm::Value* {
    const TensorType& type = view.value->tensor_type();
    const bool is_same_for_all = type.rank() < 3 || type.dims[0] == Dim(1);
    return is_same_for_all ? integer(0) : strides(type)[0];
  };
  llvm::Value* steps[] = {batch_stride(product.lhs), batch_stride(product.rhs),
                          batch_stride(product.out),
                          product.addend ? batch_stride(*product.addend) : integer(0)};
  emit_loop(builder_, dim(product.out.value->tensor_type().dims[0]), [&](llvm::Value* index) {
    const auto matrix = [&](llvm::Value* base, llvm::Value* step) {
      return strided_address(builder_, base, {index}, {step}, bytes);
    };
    emit_matrix(matrix(lhs, steps[0]), matrix(rhs, steps[1]), matrix(out, steps[2]),
                matrix(addend, steps[3]));
  });
}

}  // namespace hostjit
