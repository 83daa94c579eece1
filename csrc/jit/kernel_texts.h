// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

#include "jit/host_target.h"

namespace hostjit {

struct KernelText {
  std::string symbol;
  std::string llvm_ir;  // optimised
  std::string assembly;
};

// Optimises a module as generate() makes it, and writes each kernel in it as a function by itself,
// products included. A kernel that is inlined in main is here as it was before.
std::vector<KernelText> kernel_texts(HostTarget& target, llvm::Module& module);

}  // namespace hostjit
