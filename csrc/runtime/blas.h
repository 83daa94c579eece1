// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hostjit {

// BLAS gemm on raw pointers, column-major: c[m, n] = op(a) @ op(b) * alpha + beta * c, where beta 0
// ignores what c held. T is float or double. Any leading dimension is accepted, and zero sizes.
template <class T>
struct Gemm {
  bool transpose_a;
  bool transpose_b;
  int64_t m;
  int64_t n;
  int64_t k;
  T alpha;
  const T* a;
  int64_t lda;
  const T* b;
  int64_t ldb;
  T beta;
  T* c;
  int64_t ldc;
};

// y = op(a) @ x * alpha + beta * y with column-major a[m, n].
template <class T>
struct Gemv {
  bool transpose;
  int64_t m;
  int64_t n;
  T alpha;
  const T* a;
  int64_t lda;
  const T* x;
  T beta;
  T* y;
};

// By the Fortran symbols that libtorch_cpu exports or depends on; false when it has none, or when
// the sizes do not fit BLAS's integers or its rule for leading dimensions. Then nothing was done.
template <class T>
bool run_in_blas(const Gemm<T>& gemm);
template <class T>
bool run_in_blas(const Gemv<T>& gemv);

// By at::cpu, for what BLAS does not take.
template <class T>
void run_in_aten(const Gemm<T>& gemm);
template <class T>
void run_in_aten(const Gemv<T>& gemv);

}  // namespace hostjit
