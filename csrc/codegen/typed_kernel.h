// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

#include "ir/kernel.h"

namespace hostjit {

llvm::Type* type_of(ParameterType type, llvm::LLVMContext& context);

// Adds a kernel for the CPU that has a signature: an internal function of these parameters, and the
// range of items behind them if `takes_range`, that calls the user's code. What this defines is
// internal too, by names of its own, and compiled for the machine of `module`. Throws Error that
// names the kernel when its code is not for this machine, keeps state, or has other parameters.
llvm::Function* link_typed_kernel(llvm::Module& module, const Kernel& kernel,
                                  const std::string& symbol, bool takes_range);

// The parameters that the function of a kernel in LLVM IR has. Throws as link_typed_kernel does.
std::vector<ParameterType> parameters_in_text(const llvm::Module& module, const Kernel& kernel);

}  // namespace hostjit
