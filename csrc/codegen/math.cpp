// SPDX-License-Identifier: Apache-2.0
#include "codegen/dispatcher.h"
#include "codegen/loop_nest.h"
#include "codegen/product_means.h"

namespace hostjit {

template <class ProductOp>
void Dispatcher::emit_product_of(const ProductOp& op, const std::function<void()>& aten) {
  if (const auto open = describe_open(op, storage_)) return emit_open_product(*open);
  const std::optional<Product> product = describe(op);
  return product ? emit_product(*product, aten) : aten();
}

void Dispatcher::emit(const Matmul& op) {
  const auto aten = [&] {
    call_fallible(Extern::hostjit_matmul, {frame_, header(op.lhs), header(op.rhs), header(op.out)});
  };
  emit_product_of(op, aten);
}

void Dispatcher::emit(const Linear& op) {
  const auto aten = [&] {
    llvm::Value* bias = op.bias ? header(op.bias) : llvm::Constant::getNullValue(pointer_);
    call_fallible(Extern::hostjit_linear,
                  {frame_, header(op.input), header(op.weight), bias, header(op.out)});
  };
  emit_product_of(op, aten);
}

void Dispatcher::emit(const Bmm& op) {
  const auto aten = [&] {
    call_fallible(Extern::hostjit_bmm, {frame_, header(op.lhs), header(op.rhs), header(op.out)});
  };
  emit_product_of(op, aten);
}

template <class SumOp>
void Dispatcher::emit_sum(const SumOp& op, Extern library) {
  const auto aten = [&] {
    llvm::Type* f64 = builder_.getDoubleTy();
    call_fallible(library, {frame_, header(op.bias), header(op.lhs), header(op.rhs),
                            llvm::ConstantFP::get(f64, op.beta),
                            llvm::ConstantFP::get(f64, op.alpha), header(op.out)});
  };
  emit_product_of(op, aten);
}

void Dispatcher::emit(const Addmm& op) { emit_sum(op, Extern::hostjit_addmm); }

void Dispatcher::emit(const Baddbmm& op) { emit_sum(op, Extern::hostjit_baddbmm); }

void Dispatcher::emit_product(const Product& product, const std::function<void()>& aten) {
  if (made_later_.contains(product.out.value)) return;
  if (product.batch == 0 || product.m == 0 || product.n == 0) return;
  ProductMeans means = means_of(product, storage_);
  if (means == ProductMeans::kFastest) {
    means = products_.has_pair_dots() ? ProductMeans::kAten : ProductMeans::kGenerated;
  }
  if (means == ProductMeans::kAten) return aten();
  const int64_t bytes = size_in_bytes(product.dtype);
  llvm::Value* lhs = data(product.lhs.value);
  llvm::Value* rhs = data(product.rhs.value);
  llvm::Value* out = data(product.out.value);
  llvm::Value* addend =
      product.addend ? data(product.addend->value) : llvm::Constant::getNullValue(pointer_);
  const auto for_each_matrix = [&](const auto& emit) {
    emit_loop(builder_, product.batch, [&](llvm::Value* batch) {
      const auto matrix = [&](llvm::Value* base, const MatrixView& view) {
        return element_address(builder_, base, {batch}, {view.batch_stride}, bytes);
      };
      emit(matrix(lhs, product.lhs), matrix(rhs, product.rhs), matrix(out, product.out),
           product.addend ? matrix(addend, *product.addend) : addend);
    });
  };
  announce_write(product.out.value);
  if (means == ProductMeans::kGenerated) {
    if (const auto shared = products_.get_shared(product)) {
      return emit_parallel_call(shared->function, {lhs, rhs, out, addend},
                                integer(product.batch * shared->blocks.per_matrix),
                                integer(shared->blocks.grain));
    }
    llvm::Function* kernel = products_.get(product);
    return for_each_matrix([&](llvm::Value* a, llvm::Value* b, llvm::Value* c, llvm::Value* d) {
      builder_.CreateCall(kernel, {a, b, c, d});
    });
  }
  emit_addend(product);
  if (product.k == 0) return;
  for_each_matrix([&](llvm::Value* a, llvm::Value* b, llvm::Value* c, llvm::Value* /*addend*/) {
    emit_blas(product, a, b, c);
  });
}

// BLAS adds to what out holds: it gets the addend first, or zeros when BLAS would do nothing.
void Dispatcher::emit_addend(const Product& product) {
  if (!product.addend && product.k != 0) return;
  const int64_t bytes = size_in_bytes(product.dtype);
  llvm::Type* element =
      product.dtype == DType::kF32 ? builder_.getFloatTy() : builder_.getDoubleTy();
  const llvm::Align align(static_cast<uint64_t>(bytes));
  llvm::Value* out = data(product.out.value);
  llvm::Value* addend = product.addend ? data(product.addend->value) : nullptr;
  emit_loop_nest(
      builder_, {product.batch, product.m, product.n},
      [&](const std::vector<llvm::Value*>& indices) {
        llvm::Value* value = llvm::ConstantFP::get(element, 0.0);
        if (addend) {
          const MatrixView& view = *product.addend;
          value = builder_.CreateAlignedLoad(
              element,
              element_address(builder_, addend, indices,
                              {view.batch_stride, view.row_stride, view.column_stride}, bytes),
              align);
          if (product.k == 0 && product.beta != 1.0) {
            value = builder_.CreateFMul(value, llvm::ConstantFP::get(element, product.beta));
          }
        }
        const MatrixView& view = product.out;
        builder_.CreateAlignedStore(
            value,
            element_address(builder_, out, indices,
                            {view.batch_stride, view.row_stride, view.column_stride}, bytes),
            align);
      });
}

// A row-major matrix is the transpose of a column-major one, so a row-major out is
// out^T[n, m] = rhs^T[n, k] @ lhs^T[k, m] to a BLAS.
void Dispatcher::emit_blas(const Product& product, llvm::Value* lhs, llvm::Value* rhs,
                           llvm::Value* out) {
  const bool is_f32 = product.dtype == DType::kF32;
  llvm::Type* element = is_f32 ? builder_.getFloatTy() : builder_.getDoubleTy();
  const BlasLayout out_layout = *blas_layout(product.m, product.n, product.out);
  struct Operand {
    llvm::Value* data;
    BlasLayout layout;
  };
  Operand a{lhs, *blas_layout(product.m, product.k, product.lhs)};
  Operand b{rhs, *blas_layout(product.k, product.n, product.rhs)};
  int64_t m = product.m;
  int64_t n = product.n;
  // Whether BLAS has to transpose what it reads as column-major.
  bool transpose_a = a.layout.is_row_major;
  bool transpose_b = b.layout.is_row_major;
  if (out_layout.is_row_major) {
    std::swap(a, b);
    std::swap(m, n);
    transpose_a = !a.layout.is_row_major;
    transpose_b = !b.layout.is_row_major;
  }
  llvm::Value* alpha = llvm::ConstantFP::get(element, product.alpha);
  llvm::Value* beta = llvm::ConstantFP::get(element, product.addend ? product.beta : 0.0);
  const int64_t k = product.k;
  // A column of out: b is a vector of k elements in a row.
  const bool is_vector = n == 1 && (transpose_b ? b.layout.leading == 1 : true);
  if (is_vector) {
    // The stored matrix is [m, k], or [k, m] when transposed.
    call(is_f32 ? Extern::hostjit_gemv_f32 : Extern::hostjit_gemv_f64,
         {builder_.getInt1(transpose_a), integer(transpose_a ? k : m), integer(transpose_a ? m : k),
          alpha, a.data, integer(a.layout.leading), b.data, beta, out});
    return;
  }
  call(is_f32 ? Extern::hostjit_gemm_f32 : Extern::hostjit_gemm_f64,
       {builder_.getInt1(transpose_a), builder_.getInt1(transpose_b), integer(m), integer(n),
        integer(k), alpha, a.data, integer(a.layout.leading), b.data, integer(b.layout.leading),
        beta, out, integer(out_layout.leading)});
}

}  // namespace hostjit
