// SPDX-License-Identifier: Apache-2.0
#include "runtime/aten_products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <dlfcn.h>

namespace hostjit {
namespace {

using Product = at::Tensor& (*)(at::Tensor& out, const at::Tensor& lhs, const at::Tensor& rhs);
using Sum = at::Tensor& (*)(at::Tensor& out, const at::Tensor& bias, const at::Tensor& lhs,
                            const at::Tensor& rhs, const at::Scalar& beta, const at::Scalar& alpha);

template <class Function>
Function find_in_libtorch_cuda(const char* name, Function otherwise) {
  void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  void* found = library != nullptr ? dlsym(library, name) : nullptr;
  return found != nullptr ? reinterpret_cast<Function>(found) : otherwise;
}

// The functions at::cuda::mm_out and so on, by the names that C++ compilers on Linux give them.
Product cuda_mm() {
  static const auto kFound =
      find_in_libtorch_cuda<Product>("_ZN2at4cuda6mm_outERNS_6TensorERKS1_S4_", &at::mm_out);
  return kFound;
}
Product cuda_bmm() {
  static const auto kFound =
      find_in_libtorch_cuda<Product>("_ZN2at4cuda7bmm_outERNS_6TensorERKS1_S4_", &at::bmm_out);
  return kFound;
}
Sum cuda_addmm() {
  static const auto kFound = find_in_libtorch_cuda<Sum>(
      "_ZN2at4cuda9addmm_outERNS_6TensorERKS1_S4_S4_RKN3c106ScalarES8_", &at::addmm_out);
  return kFound;
}
Sum cuda_baddbmm() {
  static const auto kFound = find_in_libtorch_cuda<Sum>(
      "_ZN2at4cuda11baddbmm_outERNS_6TensorERKS1_S4_S4_RKN3c106ScalarES8_", &at::baddbmm_out);
  return kFound;
}

}  // namespace

void multiply(at::Tensor& out, const at::Tensor& lhs, const at::Tensor& rhs) {
  if (out.is_cpu()) {
    at::cpu::mm_out(out, lhs, rhs);
  } else if (out.is_cuda()) {
    cuda_mm()(out, lhs, rhs);
  } else {
    at::mm_out(out, lhs, rhs);
  }
}

void multiply_batches(at::Tensor& out, const at::Tensor& lhs, const at::Tensor& rhs) {
  if (out.is_cpu()) {
    at::cpu::bmm_out(out, lhs, rhs);
  } else if (out.is_cuda()) {
    cuda_bmm()(out, lhs, rhs);
  } else {
    at::bmm_out(out, lhs, rhs);
  }
}

void multiply_add(at::Tensor& out, const at::Tensor& bias, const at::Tensor& lhs,
                  const at::Tensor& rhs, const at::Scalar& beta, const at::Scalar& alpha) {
  if (out.is_cpu()) {
    at::cpu::addmm_out(out, bias, lhs, rhs, beta, alpha);
  } else if (out.is_cuda()) {
    cuda_addmm()(out, bias, lhs, rhs, beta, alpha);
  } else {
    at::addmm_out(out, bias, lhs, rhs, beta, alpha);
  }
}

void multiply_add_batches(at::Tensor& out, const at::Tensor& bias, const at::Tensor& lhs,
                          const at::Tensor& rhs, const at::Scalar& beta, const at::Scalar& alpha) {
  if (out.is_cpu()) {
    at::cpu::baddbmm_out(out, bias, lhs, rhs, beta, alpha);
  } else if (out.is_cuda()) {
    cuda_baddbmm()(out, bias, lhs, rhs, beta, alpha);
  } else {
    at::baddbmm_out(out, bias, lhs, rhs, beta, alpha);
  }
}

}  // namespace hostjit
