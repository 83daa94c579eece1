// SPDX-License-Identifier: Apache-2.0
#include "bindings/program_arguments.h"

#include "support/check.h"

namespace hostjit {
ProgramArguments::ProgramArguments(const Program& program, Frame* frame) : program_(program) {
  const size_t num_inputs = program.inputs().size();
  // Used by position, within the capacity: inputs_ points into the others.
  tensors_.reserve(num_inputs);
  scalars_.reserve(num_inputs);
  inputs_.reserve(num_inputs + 1);
  inputs_.data()[0] = frame;
}

void ProgramArguments::check_is_empty(const c10::TensorImpl& impl) const {
  HOSTJIT_CHECK(impl.numel() == 0, "input %", program_.inputs()[num_added_]->name(), " of sizes ",
                impl.sizes(), " has no memory: its storage was resized");
}

void ProgramArguments::add_index(int64_t value) {
  scalars_.data()[num_added_] = value;
  inputs_.data()[num_added_ + 1] = &scalars_.data()[num_added_];
  ++num_added_;
}

}  // namespace hostjit
