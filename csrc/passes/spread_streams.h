// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Puts what the body does on its CUDA device on as many streams as the knob spread_streams says,
// the caller's among them: an op goes where it can begin first, if all take equally long, and stays
// on the stream of what it depends on where that makes no difference. Events order what depends on
// one another by memory or effects. Nothing changes without the knob, in a program that has streams
// of its own, and where all work would be one CUDA graph, which has branches already.
void spread_streams(Program& program);

}  // namespace hostjit
