// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "codegen/product.h"
#include "codegen/storage.h"

namespace hostjit {

// A product of which only the row knows how many rows of lhs there are, or how many matrices, and
// generated code does it: n, k and the strides inside of a matrix are constants.
struct OpenProduct {
  // Of one matrix. m is a constant, or open: then it says nothing.
  Product product;
  bool is_open = false;
  // Whose dims but the last two are the batch, and the one before the last is m; or all but the
  // last are m, when `rows_are_collapsed`.
  bool rows_are_collapsed = true;
};

// nullopt for products of static types, see describe, and for those that are left to ATen. Depends
// on nothing but types and memory, so that frames are the same for all machines.
std::optional<OpenProduct> describe_open(const Matmul& op, const StoragePlan& storage);
std::optional<OpenProduct> describe_open(const Linear& op, const StoragePlan& storage);
std::optional<OpenProduct> describe_open(const Bmm& op, const StoragePlan& storage);
std::optional<OpenProduct> describe_open(const Addmm& op, const StoragePlan& storage);
std::optional<OpenProduct> describe_open(const Baddbmm& op, const StoragePlan& storage);

}  // namespace hostjit
