// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "evaluator/evaluator.h"
#include "ir/program.h"
#include "jit/jit.h"
#include "passes/pass_manager.h"
#include "runtime/program_state.h"

namespace hostjit {

// A Host IR program made runnable by both runtimes: after the passes, with its compiled code, its
// evaluator and its frames. Immutable; calls from several threads are fine.
class CompiledProgram {
 public:
  // Runs the pass pipeline on `program` and compiles it. Throws Error.
  explicit CompiledProgram(Program program);

  const Program& program() const { return program_; }
  ProgramState& state() { return *state_; }
  const CompiledModule& module() const { return *module_; }
  const std::vector<PassTiming>& pass_timings() const { return pass_timings_; }

  MainFunction jit_main() const { return jit_main_; }
  // True when some node goes through the dispatcher and may warn.
  bool calls_aten() const { return !module_->layout().aten_calls.empty(); }

  // The evaluator is made when it is first asked for.
  MainFunction evaluator_main();

 private:
  Program program_;
  std::vector<PassTiming> pass_timings_;
  std::unique_ptr<CompiledModule> module_;
  std::once_flag evaluator_made_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<ProgramState> state_;
  MainFunction jit_main_ = nullptr;
};

}  // namespace hostjit
