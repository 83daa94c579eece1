// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Checks the memory of a program whose values are defined before their uses: nothing is used,
// through any alias, after it was freed; only memory that an op of the program made is freed, once;
// constants and results of init are not written by the body; outputs are memory that the caller may
// keep; planned memory lies aligned in the arena, and apart from other memory that is live.
void verify_memory(const Program& program);

}  // namespace hostjit
