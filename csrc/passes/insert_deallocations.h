// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "ir/program.h"

namespace hostjit {

// Places one Deallocate after the last use of every buffer that the body allocates and of every
// tensor that an ATen call of the body returns, uses through views and ATen aliases included. What
// an output may refer to gets none, and what init makes lives as long as the frame. Deallocates
// that are there already are placed anew: an input that has one gets one.
void insert_deallocations(Program& program);

// Appends a Deallocate for each of the inputs at these positions that no output may refer to.
// Throws Error for a position out of range, and for an input that is no tensor.
void donate_inputs(Program& program, const std::vector<size_t>& positions);

// Whether an input has a Deallocate.
bool donates_inputs(const Program& program);

}  // namespace hostjit
