// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/Module.h>

#include <memory>

#include "ir/kernel.h"

namespace hostjit {

// The module that the text of a user's kernel is, freed of what was said of the machine, compiler
// and source that it was made with. Throws Error that names the kernel when it is no code for the
// machine of `module`, keeps state from call to call, or does not define a function
// `void @<entry>(...)` that can be called from generated code.
std::unique_ptr<llvm::Module> parse_user_module(const llvm::Module& module, const Kernel& kernel);

}  // namespace hostjit
