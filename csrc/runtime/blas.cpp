// SPDX-License-Identifier: Apache-2.0
#include "runtime/blas.h"

#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

#include "runtime/tensor_header.h"
#include "runtime/torch_symbols.h"

namespace hostjit {
namespace {

// Integers are passed as int64_t: a library built for 32-bit integers reads the low half, which
// comes first on the little-endian machines that hostjit generates code for.
template <class T>
using GemmFunction = void (*)(const char* transpose_a, const char* transpose_b, const int64_t* m,
                              const int64_t* n, const int64_t* k, const T* alpha, const T* a,
                              const int64_t* lda, const T* b, const int64_t* ldb, const T* beta,
                              T* c, const int64_t* ldc);
template <class T>
using GemvFunction = void (*)(const char* transpose, const int64_t* m, const int64_t* n,
                              const T* alpha, const T* a, const int64_t* lda, const T* x,
                              const int64_t* increment_x, const T* beta, T* y,
                              const int64_t* increment_y);

template <class T>
std::string symbol_name(const char* operation) {
  return std::string(std::is_same_v<T, float> ? "s" : "d") + operation + "_";
}

bool fits(std::initializer_list<int64_t> sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](int64_t size) {
    return size >= 0 && size <= std::numeric_limits<int32_t>::max();
  });
}

// BLAS wants a leading dimension of at least the rows, also where a single column makes it unused.
int64_t leading_dimension(int64_t rows, int64_t columns, int64_t given) {
  return columns <= 1 ? std::max<int64_t>(rows, 1) : given;
}

template <class T>
constexpr DType kDType = std::is_same_v<T, float> ? DType::kF32 : DType::kF64;

// A column-major matrix, or its transpose, as a tensor.
template <class T>
at::Tensor matrix(const T* data, int64_t rows, int64_t columns, int64_t leading, bool transpose) {
  TensorSpec type{kDType<T>, Device{}, {rows, columns}, {1, leading}};
  if (transpose) {
    std::swap(type.sizes[0], type.sizes[1]);
    std::swap(type.strides[0], type.strides[1]);
  }
  return tensor_over(const_cast<T*>(data), type);
}

}  // namespace

template <class T>
bool run_in_blas(const Gemm<T>& gemm) {
  static const auto function = find_in_torch<GemmFunction<T>>(symbol_name<T>("gemm"));
  const auto& [transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc] = gemm;
  const int64_t rows_a = transpose_a ? k : m;
  const int64_t rows_b = transpose_b ? n : k;
  const int64_t leading_a = leading_dimension(rows_a, transpose_a ? m : k, lda);
  const int64_t leading_b = leading_dimension(rows_b, transpose_b ? k : n, ldb);
  const int64_t leading_c = leading_dimension(m, n, ldc);
  // k = 0 is left to ATen: libraries differ in whether they still write c.
  if (function == nullptr || m == 0 || n == 0 || k == 0 ||
      !fits({m, n, k, leading_a, leading_b, leading_c}) || leading_a < rows_a ||
      leading_b < rows_b || leading_c < m) {
    return false;
  }
  function(transpose_a ? "T" : "N", transpose_b ? "T" : "N", &m, &n, &k, &alpha, a, &leading_a, b,
           &leading_b, &beta, c, &leading_c);
  return true;
}

template <class T>
bool run_in_blas(const Gemv<T>& gemv) {
  static const auto function = find_in_torch<GemvFunction<T>>(symbol_name<T>("gemv"));
  const auto& [transpose, m, n, alpha, a, lda, x, beta, y] = gemv;
  const int64_t leading_a = leading_dimension(m, n, lda);
  // BLAS leaves y alone when a has no elements.
  if (function == nullptr || m == 0 || n == 0 || !fits({m, n, leading_a}) || leading_a < m) {
    return false;
  }
  const int64_t one = 1;
  function(transpose ? "T" : "N", &m, &n, &alpha, a, &leading_a, x, &one, &beta, y, &one);
  return true;
}

template <class T>
void run_in_aten(const Gemm<T>& gemm) {
  const at::Tensor a = gemm.transpose_a ? matrix(gemm.a, gemm.k, gemm.m, gemm.lda, true)
                                        : matrix(gemm.a, gemm.m, gemm.k, gemm.lda, false);
  const at::Tensor b = gemm.transpose_b ? matrix(gemm.b, gemm.n, gemm.k, gemm.ldb, true)
                                        : matrix(gemm.b, gemm.k, gemm.n, gemm.ldb, false);
  at::Tensor c = matrix<T>(gemm.c, gemm.m, gemm.n, gemm.ldc, false);
  at::cpu::addmm_out(c, c, a, b, gemm.beta, gemm.alpha);
}

template <class T>
void run_in_aten(const Gemv<T>& gemv) {
  const int64_t size_x = gemv.transpose ? gemv.m : gemv.n;
  const int64_t size_y = gemv.transpose ? gemv.n : gemv.m;
  const at::Tensor a = matrix(gemv.a, gemv.m, gemv.n, gemv.lda, gemv.transpose);
  const at::Tensor x = matrix(gemv.x, size_x, 1, std::max<int64_t>(size_x, 1), false);
  at::Tensor y = matrix<T>(gemv.y, size_y, 1, std::max<int64_t>(size_y, 1), false);
  at::cpu::addmm_out(y, y, a, x, gemv.beta, gemv.alpha);
}

template bool run_in_blas(const Gemm<float>&);
template bool run_in_blas(const Gemm<double>&);
template bool run_in_blas(const Gemv<float>&);
template bool run_in_blas(const Gemv<double>&);
template void run_in_aten(const Gemm<float>&);
template void run_in_aten(const Gemm<double>&);
template void run_in_aten(const Gemv<float>&);
template void run_in_aten(const Gemv<double>&);

}  // namespace hostjit
