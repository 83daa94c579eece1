// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>
#include <utility>

#include "codegen/codegen.h"

namespace hostjit {

// The machine code side of LLVM for the CPU of this process. The first is expensive to make. Not
// thread-safe.
class HostTarget {
 public:
  HostTarget();
  // One for another thread.
  HostTarget another() const;

  // What the code generator has to know of the target and of the math in this process.
  const CodegenOptions& codegen_options() const { return options_; }
  llvm::TargetMachine& machine() { return *machine_; }

  // All of the target that code depends on: CPU, features, vector math. Equal in every process with
  // equal libraries on an equal machine.
  std::string description() const;

  // O2, with kernels by themselves: one that is launched often is vectorised once, and inlined
  // afterwards. Then defines the scalar math that is still called.
  void optimize(llvm::Module& module);
  // A relocatable object.
  llvm::SmallVector<char, 0> emit_object(llvm::Module& module);
  // Assembly text.
  std::string emit_assembly(llvm::Module& module);

 private:
  HostTarget(std::unique_ptr<llvm::TargetMachine> machine, CodegenOptions options)
      : machine_(std::move(machine)), options_(std::move(options)) {}
  llvm::SmallVector<char, 0> emit(llvm::Module& module, llvm::CodeGenFileType type);

  std::unique_ptr<llvm::TargetMachine> machine_;
  CodegenOptions options_;
};

}  // namespace hostjit
