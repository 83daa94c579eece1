// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/LLVMContext.h>

#include <string>

namespace llvm {
class DiagnosticInfo;
}

namespace hostjit {

// A context whose errors are collected; LLVM's own handler ends the process.
class CompileContext {
 public:
  // `program` is for messages.
  explicit CompileContext(std::string program);
  CompileContext(const CompileContext&) = delete;
  CompileContext& operator=(const CompileContext&) = delete;

  llvm::LLVMContext& get() { return context_; }
  // Throws Error with the errors so far.
  void check() const;

 private:
  static void handle(const llvm::DiagnosticInfo* diagnostic, void* self);

  std::string program_;
  std::string errors_;
  llvm::LLVMContext context_;
};

}  // namespace hostjit
