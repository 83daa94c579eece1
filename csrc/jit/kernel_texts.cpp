// SPDX-License-Identifier: Apache-2.0
#include "jit/kernel_texts.h"

#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <memory>

#include "codegen/kernel_linker.h"
#include "jit/code_parts.h"

namespace hostjit {
namespace {

std::unique_ptr<llvm::Module> module_of(const llvm::Function& kernel) {
  llvm::ValueToValueMapTy values;
  auto module =
      llvm::CloneModule(*kernel.getParent(), values, [&](const llvm::GlobalValue* global) {
        const auto* function = llvm::dyn_cast<llvm::Function>(global);
        return !function || function == &kernel || function->hasLocalLinkage();
      });
  drop_unused(*module);
  return module;
}

}  // namespace

std::vector<KernelText> kernel_texts(HostTarget& target, llvm::Module& module) {
  std::vector<llvm::Function*> kernels;
  for (llvm::Function& function : module) {
    if (!is_kernel(function) || function.isDeclaration()) continue;
    function.setLinkage(llvm::GlobalValue::ExternalLinkage);  // stays though it is inlined
    kernels.push_back(&function);
  }
  target.optimize(module);
  std::vector<KernelText> texts;
  for (const llvm::Function* kernel : kernels) {
    const std::unique_ptr<llvm::Module> part = module_of(*kernel);
    KernelText& text = texts.emplace_back();
    text.symbol = kernel->getName().str();
    llvm::raw_string_ostream out(text.llvm_ir);
    part->print(out, nullptr);
    text.assembly = target.emit_assembly(*part);
  }
  return texts;
}

}  // namespace hostjit
