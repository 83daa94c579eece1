// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ir/program.h"
#include "runtime/abi.h"

namespace hostjit {

// The reference meaning of Host IR, and the runtime when the JIT is off: walks the program and does
// each op through PyTorch's dispatcher, with a tensor for every value. Ignores the memory plan.
// Callers are in no_grad, or nothing requires grad. Thread-safe.
class Evaluator {
 public:
  // Keeps a clone of the program. `kernels` has the CPU kernels that launch_kernel names.
  // Throws Error for an op that it cannot run: an unknown kernel or operator.
  Evaluator(const Program& program, std::map<std::string, PackedKernel> kernels);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // One call, with the arguments of a MainFunction. Throws what an op raises; then frame->node is
  // that op and outputs are unset.
  void run(Frame* frame, void* const* inputs, void** outputs) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The MainFunction of every evaluated program: the evaluator is that of the frame's program.
int32_t evaluator_main(int64_t cache_id, void* const* inputs, void** outputs) noexcept;

}  // namespace hostjit
