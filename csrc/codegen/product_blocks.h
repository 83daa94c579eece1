// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "codegen/product.h"
#include "codegen/product_plan.h"

namespace hostjit {

// How threads share a product: each takes some of the blocks, which are columns or rows of out or
// whole matrices of the batch. The blocks are the same with any number of threads, and so are the
// results.
struct ProductBlocks {
  bool are_columns = true;
  int64_t size = 0;        // columns or rows in a block; the last one of a matrix may have fewer
  int64_t per_matrix = 1;  // number of blocks
  int64_t grain = 1;       // blocks that are worth another thread
};

// nullopt for a product that one thread does fastest. Open rows are not divided.
std::optional<ProductBlocks> divide_product(const Product& product, const ProductPlan& plan,
                                            unsigned vector_bits);

// Rows of a product that are worth another thread.
int64_t rows_per_thread(const Product& product, const ProductPlan& plan, unsigned vector_bits);

// The product that one of the blocks is, with the first one's operands.
Product block_of_product(const Product& product, const ProductBlocks& blocks, bool is_last);

}  // namespace hostjit
