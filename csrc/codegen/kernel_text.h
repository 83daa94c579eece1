// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <memory>
#include <string>

#include "ir/kernel.h"

namespace hostjit {

std::string type_text(const llvm::Type& type);

// The module that the text of a kernel in LLVM IR is. It calls LLVM intrinsics, functions of its
// own and vector math, nothing else. Throws Error that names the kernel, with line and column
// where the text is malformed.
std::unique_ptr<llvm::Module> parse_kernel(const Kernel& kernel, llvm::LLVMContext& context);

// Makes `part` one for the machine of `module`, whatever it was for, and all that it defines but
// `kernel` internal: names of two kernels' own functions may be the same, and only internal ones
// can be renamed.
void prepare_to_link(llvm::Module& part, const llvm::Module& module, llvm::Function& kernel);

}  // namespace hostjit
