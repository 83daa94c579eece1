// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel_text.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/vector_math.h"
#include "support/check.h"

namespace hostjit {
namespace {

std::unique_ptr<llvm::Module> parse(const Kernel& kernel, llvm::LLVMContext& context) {
  llvm::SMDiagnostic diagnostic;
  auto module =
      llvm::parseAssembly(llvm::MemoryBufferRef(kernel.text, kernel.name), diagnostic, context);
  HOSTJIT_CHECK(module, "kernel '", kernel.name, "': line ", diagnostic.getLineNo(), ", column ",
                diagnostic.getColumnNo() + 1, ": ", diagnostic.getMessage().str(), "\n",
                diagnostic.getLineContents().str());
  std::string problems;
  llvm::raw_string_ostream out(problems);
  HOSTJIT_CHECK(!llvm::verifyModule(*module, &out), "kernel '", kernel.name, "': ", problems);
  return module;
}

// A kernel calls LLVM intrinsics, functions of its own and vector math, nothing else.
void check_calls(const Kernel& kernel, const llvm::Module& module) {
  for (const llvm::Function& function : module) {
    if (!function.isDeclaration() || function.isIntrinsic() || function.use_empty()) continue;
    HOSTJIT_CHECK(is_vector_math(function.getName()), "kernel '", kernel.name, "': calls @",
                  function.getName().str(),
                  ", which is neither defined in its text nor a function of vector math");
    for (const ScalarMathFunction& math : scalar_math_functions()) {
      if (function.getName() != math.name) continue;
      const llvm::FunctionType* type = function.getFunctionType();
      bool fits =
          type->getNumParams() == math.arity && !type->isVarArg() &&
          (math.is_f64 ? type->getReturnType()->isDoubleTy() : type->getReturnType()->isFloatTy());
      for (const llvm::Type* parameter : type->params()) {
        fits = fits && parameter == type->getReturnType();
      }
      HOSTJIT_CHECK(fits, "kernel '", kernel.name, "': declares @", math.name, " as ",
                    type_text(*type), ", expected ", math.arity, " parameters and a result of ",
                    math.is_f64 ? "double" : "float");
    }
  }
  for (const llvm::GlobalVariable& global : module.globals()) {
    HOSTJIT_CHECK(!global.isDeclaration(), "kernel '", kernel.name, "': refers to @",
                  global.getName().str(), ", which its text does not define");
  }
}

}  // namespace

std::string type_text(const llvm::Type& type) {
  std::string text;
  llvm::raw_string_ostream out(text);
  type.print(out);
  return text;
}

std::unique_ptr<llvm::Module> parse_kernel(const Kernel& kernel, llvm::LLVMContext& context) {
  std::unique_ptr<llvm::Module> module = parse(kernel, context);
  check_calls(kernel, *module);
  return module;
}

void prepare_to_link(llvm::Module& part, const llvm::Module& module, llvm::Function& kernel) {
  part.setDataLayout(module.getDataLayout());
  part.setTargetTriple(module.getTargetTriple());
  for (llvm::GlobalValue& value : part.global_values()) {
    if (value.isDeclaration() || &value == &kernel || value.getName().starts_with("llvm."))
      continue;
    value.setLinkage(llvm::GlobalValue::InternalLinkage);
  }
  for (llvm::GlobalObject& object : part.global_objects()) object.setComdat(nullptr);
}

}  // namespace hostjit
