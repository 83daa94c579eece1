// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Places one Deallocate after the last use of every buffer that the body allocates and of every
// tensor that an ATen call of the body returns, uses through views and ATen aliases included. What
// an output may refer to gets none, and what init makes lives as long as the frame. Deallocates
// that are there already are placed anew.
void insert_deallocations(Program& program);

}  // namespace hostjit
