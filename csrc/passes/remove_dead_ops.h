// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Removes every op whose effects nobody sees: its results are unused, and the memory that it
// writes is neither an input's, nor an output's, nor read by an op that stays. Ops with a side
// effect and impure ATen calls stay. Kernels that no op launches go, too.
void remove_dead_ops(Program& program);

}  // namespace hostjit
