// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ir/program.h"

namespace hostjit {

// The memory of a program as text: one line per allocation (name, type, bytes, offset into the
// arena or where else it lives, first and last op of its life), then the bytes of the arena, the
// lower bound, their ratio, and what the planned buffers would need without sharing, in a program
// with memory of a CUDA device for that of the CPU and that of the device. Ops of the body are
// numbered from 0.
std::string memory_plan_report(const Program& program);

}  // namespace hostjit
