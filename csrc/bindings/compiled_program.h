// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "evaluator/evaluator.h"
#include "ir/program.h"
#include "jit/jit.h"
#include "passes/pass_manager.h"
#include "runtime/program_state.h"

namespace hostjit {

// A Host IR program made runnable by both runtimes: after the passes, with its compiled code, its
// evaluator and its frames. Calls from several threads that hold the GIL are fine.
class CompiledProgram {
 public:
  // Runs the pass pipeline on `program` and compiles it. Throws Error.
  explicit CompiledProgram(Program program);

  const Program& program() const { return program_; }
  ProgramState& state() { return *state_; }
  const CompiledModule& module() const { return *module_; }
  const std::vector<PassTiming>& pass_timings() const { return pass_timings_; }

  MainFunction jit_main() const { return jit_main_; }
  // True when some node may issue a warning of PyTorch: operators, and copies from complex to real.
  bool may_warn() const { return may_warn_; }

  // True when a call may take long enough for other threads to want the GIL: operators, and large
  // kernels, copies and products.
  bool takes_long() const { return takes_long_; }

  // A frame for one call; throws what its initialisation raised. Under the GIL, which makes the one
  // kept here as cheap to take as a pointer is to read; the state's own pool is atomic.
  Frame* take_frame() {
    if (Frame* frame = std::exchange(idle_frame_, nullptr)) [[likely]]
      return frame;
    return take_another_frame();
  }
  void give_back(Frame* frame) noexcept {
    if (idle_frame_ == nullptr) [[likely]] {
      ProgramState::settle(frame);
      idle_frame_ = frame;
    } else {
      state_->give_back(frame);
    }
  }

  // Until end_timing, calls by either runtime run code that times its nodes, compiled when first
  // asked for. Throws Error while they already do.
  void begin_timing();
  void end_timing() { jit_main_ = module_->main(); }
  // See CompiledModule::node_times.
  std::span<int64_t> node_times() const {
    return timed_ ? timed_->node_times() : std::span<int64_t>();
  }

  // The evaluator is made when it is first asked for.
  MainFunction evaluator_main();

 private:
  Frame* take_another_frame();

  Program program_;
  std::vector<PassTiming> pass_timings_;
  std::unique_ptr<CompiledModule> module_;
  // Null before begin_timing. Its frames are those of module_: the layouts are the same.
  std::unique_ptr<CompiledModule> timed_;
  std::once_flag evaluator_made_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<ProgramState> state_;
  MainFunction jit_main_ = nullptr;
  bool may_warn_;
  bool takes_long_;
  Frame* idle_frame_ = nullptr;
};

}  // namespace hostjit
