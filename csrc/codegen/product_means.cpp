// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_means.h"

#include "codegen/half_floats.h"
#include "codegen/product_plan.h"

namespace hostjit {
namespace {

// Multiply-adds of a batched product that are worth ATen's threads.
constexpr int64_t kLargeBatchedProduct = 1 << 22;
// Of one product of bf16, from where on oneDNN is not behind on one and two cores of a Zen 5 (see
// product_plan.cpp): it is up to a fifth ahead after it, and generated code is 1.0 to 1.1 times as
// fast just before. There is no such size for f16, nor for bf16 when oneDNN may not use
// AVX512-BF16: with the other instructions of AVX-512 it is 2 to 3 times slower, with AVX2 3 to 4
// times and more.
constexpr int64_t kLargeBf16Product = 1 << 27;

}  // namespace

bool writes_apart(const Product& product, const StoragePlan& storage) {
  const Storage& out = storage.of(product.out.value);
  return !may_overlap(out, storage.of(product.lhs.value)) &&
         !may_overlap(out, storage.of(product.rhs.value)) &&
         !(product.addend && may_overlap(out, storage.of(product.addend->value)));
}

ProductMeans means_of(const Product& product, const StoragePlan& storage) {
  const int64_t multiply_adds = product.m * product.n * product.k;
  if (writes_apart(product, storage) && is_walkable(product)) {
    const bool is_large_bf16 = product.dtype == DType::kBF16 && multiply_adds > kLargeBf16Product;
    return is_large_bf16 ? ProductMeans::kFastest : ProductMeans::kGenerated;
  }
  const bool is_large_batch =
      product.batch > 1 && product.batch * multiply_adds > kLargeBatchedProduct;
  return is_half_float(product.dtype) || is_large_batch ? ProductMeans::kAten : ProductMeans::kBlas;
}

}  // namespace hostjit
