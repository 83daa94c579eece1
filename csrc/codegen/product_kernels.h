// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "codegen/product.h"

namespace llvm {
class Function;
class Module;
}  // namespace llvm

namespace hostjit {

// Generated code for the products that it does faster than a library.
// One function per shape, `void(ptr lhs, ptr rhs, ptr out, ptr addend)`, of one matrix of the
// batch; it counts as a kernel (is_kernel) and inlines where that pays.
class ProductKernels {
 public:
  // `vector_bits`: of the widest registers that arithmetic should use.
  ProductKernels(llvm::Module& module, unsigned vector_bits);

  // nullptr when a library should do it: too large, or strides that vectors can't follow.
  llvm::Function* get(const Product& product);

 private:
  llvm::Module& module_;
  unsigned vector_bits_;
  std::map<std::string, llvm::Function*> functions_;
};

}  // namespace hostjit
