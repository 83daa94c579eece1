// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ir/program.h"

namespace hostjit {

// A verified program of about `num_steps` random steps: kernels, fills, constants, views of views,
// ATen calls that alias, mutate or have effects, writes to inputs, dead work, donated inputs.
// Nothing reads memory that was not written. Each op has a location of its own.
Program random_program(uint32_t seed, int num_steps);

}  // namespace hostjit
