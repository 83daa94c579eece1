// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "passes/alias_analysis.h"
#include "passes/arena_placement.h"

namespace hostjit {

// The life of the memory of one Allocate. Instants: 0 is init, 1 the first op of the body, and so
// on through its regions, each op with regions taking another one at its end; the last is the
// return.
struct BufferLifetime {
  Value* buffer = nullptr;  // result of the Allocate
  // From the Allocate up to its Deallocate, or to the end when there is none; at least past the
  // last use through any alias. A buffer of init lives from 0 to the end.
  LiveBytes live;  // 0 bytes where a symbol decides
  // The first and last op that uses the memory, through any alias; 0 when none does.
  int64_t first_use = 0;
  int64_t last_use = 0;
  bool is_persistent = false;  // of init
  bool escapes = false;
};

// In order of definition.
std::vector<BufferLifetime> buffer_lifetimes(const Program& program, const AliasAnalysis& aliases);

}  // namespace hostjit
