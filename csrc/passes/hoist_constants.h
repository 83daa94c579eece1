// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Moves to init, which runs once per frame, the work of the body that is the same at every call:
// ops that write memory or call ATen, depend on no input, and whose memory nobody else writes and
// nobody reads before they are done with it. Impure ops stay, as does what an output may refer to.
// Ops that cost nothing (views, constants, index arithmetic) go along only where hoisted work
// needs them. Their Deallocates vanish: the memory lives as long as the frame.
void hoist_constants(Program& program);

}  // namespace hostjit
