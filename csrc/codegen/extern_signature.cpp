// SPDX-License-Identifier: Apache-2.0
#include "codegen/extern_signature.h"

namespace hostjit {
namespace {

template <class F>
llvm::Function* declare(llvm::Module& module, const char* name) {
  if (llvm::Function* function = module.getFunction(name)) return function;
  using Signature = ExternSignature<F*>;
  auto* function = llvm::Function::Create(Signature::type(module.getContext()),
                                          llvm::GlobalValue::ExternalLinkage, name, module);
  Signature::set_attributes(*function);
  return function;
}

}  // namespace

llvm::Function* declare_extern(llvm::Module& module, Extern name) {
  switch (name) {
#define HOSTJIT_DECLARE_EXTERN(function) \
  case Extern::function: return declare<decltype(function)>(module, #function);
    HOSTJIT_FOR_EACH_EXTERN(HOSTJIT_DECLARE_EXTERN)
#undef HOSTJIT_DECLARE_EXTERN
  }
  HOSTJIT_ICHECK(false, "no such extern");
}

}  // namespace hostjit
