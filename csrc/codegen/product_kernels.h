// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <map>
#include <string>

#include "codegen/product_blocks.h"

namespace llvm {
class Function;
class Module;
}  // namespace llvm

namespace hostjit {

// What is done to the elements of out right after they were computed: `function(arguments..., i64
// begin, i64 end)`, of which argument `operand` is out.
struct ProductEpilogue {
  llvm::Function* function = nullptr;
  unsigned operand = 0;
};

// Generated code for products, in the form that plan_product chooses.
// One function per shape, `void(ptr lhs, ptr rhs, ptr out, ptr addend)`, of one matrix of the
// batch; that of a whole product counts as a kernel (is_kernel) and inlines where that pays. It has
// no state and takes scratch memory from the stack: threads may call it at the same time. Some rows
// or columns of a product are a product of a smaller shape with the same strides.
class ProductKernels {
 public:
  // `vector_bits`: of the widest registers that arithmetic should use. `has_pair_dots`: whether
  // there is the instruction of pair_dots.h.
  ProductKernels(llvm::Module& module, unsigned vector_bits, bool has_pair_dots);

  bool has_pair_dots() const { return has_pair_dots_; }

  // nullptr for products that are not walkable.
  llvm::Function* get(const Product& elements);

  // With an epilogue, a tile behind: `void(ptr lhs, ptr rhs, ptr out, ptr addend, arguments...)`.
  // nullptr for products that it is no use for: of one row, by dots and of several tiles are those
  // that wait for memory meanwhile.
  llvm::Function* get(const Product& elements, const ProductEpilogue& epilogue);

  // Blocks [begin, end) of the whole batch: `void(ptr lhs, ptr rhs, ptr out, ptr addend, i64 begin,
  // i64 end)`; begin < end. nullopt for a product that one thread does fastest, and where get gives
  // nullptr. With open rows their number comes before begin, as for get_open.
  struct Shared {
    llvm::Function* function = nullptr;
    ProductBlocks blocks;
  };
  std::optional<Shared> get_shared(const Product& elements);

  // A product of f32 or f64 with an open number of rows, in the form that suits about `product.m`
  // of them: `void(ptr lhs, ptr rhs, ptr out, ptr addend, i64 rows)`. nullptr for one that is not
  // walkable.
  llvm::Function* get_open(Product product);

  // The same for tiles [begin, end) of rows, which threads may share: the parameters of get_open,
  // then i64 begin and i64 end.
  struct SharedRows {
    llvm::Function* function = nullptr;
    int64_t tile = 1;   // rows
    int64_t grain = 1;  // tiles that are worth another thread
  };
  SharedRows get_open_shared(Product product);

 private:
  Product in_factors(const Product& product) const;
  llvm::Function* get(const Product& product, const ProductPlan& plan);
  void emit_with_epilogue(llvm::Function& function, const Product& product,
                          const ProductEpilogue& epilogue) const;
  void emit_row_tiles(llvm::Function& function, const Product& product, llvm::Function* kernel,
                      int64_t tile);
  void emit_form(llvm::IRBuilder<>& builder, llvm::Function& function, const Product& product,
                 const ProductPlan& plan) const;
  void emit_blocks(llvm::Function& function, const Product& product, const ProductPlan& plan,
                   const ProductBlocks& blocks);

  llvm::Module& module_;
  unsigned vector_bits_;
  bool has_pair_dots_;
  std::map<std::string, llvm::Function*> functions_;
};

}  // namespace hostjit
