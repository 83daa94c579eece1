// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hostjit {

struct NodeProgram {
  std::string_view name;
  std::string_view text;
};

// One program for each kind of node; `empty` is what a call without nodes costs.
std::span<const NodeProgram> node_programs();

enum class Inlining : uint8_t { kAllowed, kForbidden };

// A chain of launches of one kernel that adds 1 to 16 floats, from %x to %y and back. Where
// inlining is allowed, values may stay in registers from launch to launch; forbidden, each is a
// call.
std::string launch_chain(int64_t num_launches, Inlining inlining);

}  // namespace hostjit
