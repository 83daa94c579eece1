// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "evaluator/value_table.h"
#include "runtime/abi.h"

namespace hostjit {

// Launches `kernel` on a CUstream of the device of the frame's program, by the driver's function
// and the code that compiled programs use. Throws what throw_launch_error throws.
void launch_on_device(Frame* frame, const LaunchKernel& op, const Kernel& kernel, void* stream,
                      ValueTable& values);

}  // namespace hostjit
