// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Whether a call of the program that fails has left nothing behind: inputs are written after
// everything that may fail, and nothing else can be seen outside. Of a program on the CPU.
bool writes_inputs_last(const Program& program);

}  // namespace hostjit
