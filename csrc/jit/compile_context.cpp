// SPDX-License-Identifier: Apache-2.0
#include "jit/compile_context.h"

#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/Support/raw_ostream.h>

#include <utility>

#include "support/check.h"

namespace hostjit {

CompileContext::CompileContext(std::string program) : program_(std::move(program)) {
  context_.setDiagnosticHandlerCallBack(&CompileContext::handle, this);
}

void CompileContext::check() const {
  HOSTJIT_CHECK(errors_.empty(), "program '", program_, "': ", errors_);
}

void CompileContext::handle(const llvm::DiagnosticInfo* diagnostic, void* self) {
  if (diagnostic->getSeverity() != llvm::DS_Error) return;
  llvm::raw_string_ostream out(static_cast<CompileContext*>(self)->errors_);
  llvm::DiagnosticPrinterRawOStream printer(out);
  diagnostic->print(printer);
  out << "\n";
}

}  // namespace hostjit
