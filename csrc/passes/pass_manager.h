// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "passes/pass.h"

namespace hostjit {

struct PassTiming {
  std::string_view name;
  double microseconds = 0;  // of the pass alone, without verifying and dumping
  bool changed = false;
};

// Verifies the program, then runs the passes in order; after each it verifies again and dumps
// (knob host_ir_passes). Throws Error for a program that was wrong before, InternalError naming the
// pass for one that a pass broke.
std::vector<PassTiming> run_passes(Program& program, std::span<const Pass> passes);

}  // namespace hostjit
