// SPDX-License-Identifier: Apache-2.0
#include "bindings/program_arguments.h"

#include "support/check.h"

namespace hostjit {

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
