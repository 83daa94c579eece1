// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "evaluator/value_table.h"
#include "ir/program.h"

namespace hostjit {

// The words of the parameters of a kernel with a signature, in its order; each begins with the
// bytes of one. Throws Error for an integer that its parameter does not hold.
std::vector<uint64_t> parameter_bits(const LaunchKernel& op, const Kernel& kernel,
                                     ValueTable& values);

}  // namespace hostjit
