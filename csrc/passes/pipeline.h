// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "passes/pass.h"
#include "passes/pass_manager.h"

namespace hostjit {

// What every program goes through between lowering and code generation, in order.
std::span<const Pass> default_pipeline();

// Throws Error that lists the passes when there is none of that name.
const Pass& find_pass(std::string_view name);

// Runs the default pipeline without what HOSTJIT_DISABLE=passes(...) names, then dumps the result
// (knob host_ir). See run_passes.
std::vector<PassTiming> run_pipeline(Program& program);

}  // namespace hostjit
