// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/Module.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>

namespace hostjit {

// A program's code as parts that LLVM can compile apart from each other, on several threads.
// Kernels of other parts are called, never inlined: that is for much code only.
class CodeParts {
 public:
  // Divides a module as generate() makes it, always in the same way.
  explicit CodeParts(const llvm::Module& module);

  // 1 for code that is not worth dividing.
  size_t size() const { return size_; }

  // Leaves of an equal module what is in part `index`. The first has main, data and short kernels.
  void keep(llvm::Module& module, size_t index) const;

 private:
  size_t part_of(const llvm::Function& function) const;

  size_t size_ = 1;
  std::map<std::string, size_t> parts_;  // of kernels that are not in the first
  std::set<std::string> shared_;         // kernels that another part calls
};

// Removes constants and functions that nothing refers to.
void drop_unused(llvm::Module& module);

}  // namespace hostjit
