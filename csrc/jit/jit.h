// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ir/program.h"
#include "runtime/abi.h"

// Native code of a Host IR program. Includes no LLVM header.

namespace hostjit {

// Where the time of one compilation went, in milliseconds.
struct CompileTimings {
  double emit = 0;      // Host IR and kernel texts to one LLVM module
  double optimize = 0;  // LLVM's O2 pipeline
  double generate = 0;  // machine code
  double link = 0;      // into this process, and look-ups
};

// The code of one program. It is freed with this object, so whoever may call main or a kernel
// keeps the object alive. All members may be called from several threads.
class CompiledModule {
 public:
  // Compiles for the CPU of this process. Throws Error that names the kernel and has LLVM's
  // diagnostic when a kernel text is wrong, InternalError when LLVM fails otherwise.
  static std::unique_ptr<CompiledModule> compile(const Program& program);

  ~CompiledModule();
  CompiledModule(const CompiledModule&) = delete;
  CompiledModule& operator=(const CompiledModule&) = delete;

  MainFunction main() const;
  // Fills the hoisted constants of a new frame; null when the program has none.
  MainFunction init() const;
  const FrameLayout& layout() const;
  const CompileTimings& timings() const;

  // The kernels behind the interface that the evaluator calls. Compiled when first asked for.
  const std::map<std::string, PackedKernel>& packed_kernels() const;

  // Texts, made again from the program when asked for: keeping them would cost every compilation.
  std::string llvm_ir() const;              // after optimisation
  std::string unoptimized_llvm_ir() const;  // as emitted, kernels linked in
  std::string assembly() const;

 private:
  struct State;
  explicit CompiledModule(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hostjit
