// SPDX-License-Identifier: Apache-2.0
#include "bindings/program_arguments.h"

#include "support/check.h"

namespace hostjit {

void ProgramArguments::check_is_empty(size_t i, const c10::TensorImpl& impl) const {
  HOSTJIT_CHECK(impl.numel() == 0, "input %", program_.inputs()[i]->name(), " of sizes ",
                impl.sizes(), " has no memory: its storage was resized");
}

}  // namespace hostjit
