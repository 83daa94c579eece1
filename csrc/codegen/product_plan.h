// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "codegen/product.h"

namespace hostjit {

enum class ProductForm : uint8_t {
  kRows,    // ProductRows
  kDots,    // ProductDots
  kPacked,  // ProductPacked
};

// The part of out that is in registers at a time, and how much of rhs is packed.
struct ProductTile {
  int64_t rows = 1;
  int64_t vectors = 1;  // of columns
  // ProductPacked: rows of rhs in a panel, a multiple of the lanes, and panels at a time.
  int64_t depth = 0;
  int64_t panels = 1;
};

struct ProductPlan {
  ProductForm form = ProductForm::kRows;
  ProductTile tile;
};

// Whether vectors can follow the strides.
bool is_walkable(const Product& product);

// How generated code does one matrix of a product; nullopt when it is not walkable.
// `vector_bits`: of the widest registers that arithmetic should use.
std::optional<ProductPlan> plan_product(const Product& product, unsigned vector_bits);

}  // namespace hostjit
