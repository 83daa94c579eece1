// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorUtils.h>
#include <ATen/ops/copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty_strided.h>

#include "runtime/aten_products.h"
#include "runtime/blas.h"
#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "runtime/tensor_header.h"
#include "runtime/torch_types.h"

namespace hostjit {
namespace {

const at::Tensor& tensor(void* pointer) { return *static_cast<const at::Tensor*>(pointer); }

// The output may be a user's tensor: its version counts writes, also those below the dispatcher.
void bump_version(at::Tensor& out) { out.unsafeGetTensorImpl()->bump_version(); }

// `source` as a matrix of `columns` columns: an alias, or nothing when its strides allow none.
std::optional<at::Tensor> as_matrix(const at::Tensor& source, int64_t rows, int64_t columns) {
  if (source.dim() == 2) return source;
  const at::DimVector sizes{rows, columns};
  const auto strides = at::detail::computeStride(source.sizes(), source.strides(), sizes);
  if (!strides) return std::nullopt;
  return alias_of(source, sizes, *strides, /*offset=*/0);
}

at::Tensor new_like(const at::Tensor& source) {
  at::DimVector strides(source.dim());
  int64_t stride = 1;
  for (int64_t dim = source.dim() - 1; dim >= 0; --dim) {
    strides[dim] = stride;
    stride *= source.size(dim);
  }
  return at::empty_strided(source.sizes(), strides, source.options());
}

void linear(at::Tensor& out, const at::Tensor& input, const at::Tensor& weight,
            const at::Tensor* bias) {
  const int64_t columns = weight.size(1);
  const int64_t results = weight.size(0);
  int64_t rows = 1;
  for (int64_t dim = 0; dim < input.dim() - 1; ++dim) rows *= input.size(dim);
  auto matrix = as_matrix(input, rows, columns);
  if (!matrix) {
    at::Tensor copy = new_like(input);
    copy.copy_(input);
    matrix = as_matrix(copy, rows, columns);
  }
  const at::Tensor transposed =
      alias_of(weight, {columns, results}, {weight.stride(1), weight.stride(0)}, /*offset=*/0);
  auto result = as_matrix(out, rows, results);
  at::Tensor staging;  // for an output whose strides don't collapse
  if (!result) {
    staging = new_like(out);
    result = as_matrix(staging, rows, results);
  }
  if (bias == nullptr) {
    multiply(*result, *matrix, transposed);
  } else if (out.is_cuda()) {
    // As eager: the library adds the bias where the input is a matrix in memory.
    if (input.dim() == 2 || input.is_contiguous()) {
      multiply_add(*result, *bias, *matrix, transposed, 1, 1);
    } else {
      multiply(*result, *matrix, transposed);
      result->add_(*bias);
    }
  } else {
    // addmm itself would expand the bias through the dispatcher, at twice the cost.
    at::compositeexplicitautograd::copy_(
        *result, alias_of(*bias, {rows, results}, {0, bias->stride(0)}, /*offset=*/0));
    multiply_add(*result, *result, *matrix, transposed, 1, 1);
  }
  if (staging.defined()) out.copy_(staging);
}

template <class T>
void run(const Gemm<T>& gemm) {
  if (!run_in_blas(gemm)) run_in_aten(gemm);
}
template <class T>
void run(const Gemv<T>& gemv) {
  if (!run_in_blas(gemv)) run_in_aten(gemv);
}

}  // namespace

extern "C" {

void hostjit_gemm_f32(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const float* a, int64_t lda, const float* b, int64_t ldb,
                      float beta, float* c, int64_t ldc) noexcept {
  run(Gemm<float>{transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc});
}

void hostjit_gemm_f64(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                      double alpha, const double* a, int64_t lda, const double* b, int64_t ldb,
                      double beta, double* c, int64_t ldc) noexcept {
  run(Gemm<double>{transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc});
}

void hostjit_gemv_f32(bool transpose, int64_t m, int64_t n, float alpha, const float* a,
                      int64_t lda, const float* x, float beta, float* y) noexcept {
  run(Gemv<float>{transpose, m, n, alpha, a, lda, x, beta, y});
}

void hostjit_gemv_f64(bool transpose, int64_t m, int64_t n, double alpha, const double* a,
                      int64_t lda, const double* x, double beta, double* y) noexcept {
  run(Gemv<double>{transpose, m, n, alpha, a, lda, x, beta, y});
}

int32_t hostjit_matmul(Frame* frame, void* lhs, void* rhs, void* out) noexcept {
  return status_of(frame, [&] {
    at::Tensor& result = *static_cast<at::Tensor*>(out);
    multiply(result, tensor(lhs), tensor(rhs));
    bump_version(result);
  });
}

int32_t hostjit_bmm(Frame* frame, void* lhs, void* rhs, void* out) noexcept {
  return status_of(frame, [&] {
    at::Tensor& result = *static_cast<at::Tensor*>(out);
    multiply_batches(result, tensor(lhs), tensor(rhs));
    bump_version(result);
  });
}

int32_t hostjit_addmm(Frame* frame, void* bias, void* lhs, void* rhs, double beta, double alpha,
                      void* out) noexcept {
  return status_of(frame, [&] {
    at::Tensor& result = *static_cast<at::Tensor*>(out);
    multiply_add(result, tensor(bias), tensor(lhs), tensor(rhs),
                 to_torch(beta, result.scalar_type()), to_torch(alpha, result.scalar_type()));
    bump_version(result);
  });
}

int32_t hostjit_baddbmm(Frame* frame, void* bias, void* lhs, void* rhs, double beta, double alpha,
                        void* out) noexcept {
  return status_of(frame, [&] {
    at::Tensor& result = *static_cast<at::Tensor*>(out);
    multiply_add_batches(result, tensor(bias), tensor(lhs), tensor(rhs),
                         to_torch(beta, result.scalar_type()),
                         to_torch(alpha, result.scalar_type()));
    bump_version(result);
  });
}

int32_t hostjit_linear(Frame* frame, void* input, void* weight, void* bias, void* out) noexcept {
  return status_of(frame, [&] {
    at::Tensor& result = *static_cast<at::Tensor*>(out);
    linear(result, tensor(input), tensor(weight), static_cast<const at::Tensor*>(bias));
    bump_version(result);
  });
}

}  // extern "C"

}  // namespace hostjit
