// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "passes/buffer_lifetimes.h"

namespace hostjit {

// One buffer whose memory another has from the op on that reads the first for the last time and is
// the first to write the second.
struct Handover {
  size_t before = 0;  // positions among the lifetimes
  size_t after = 0;
};

// The handovers that the ops of the body allow, in their order. A buffer is part of at most one on
// either side, so that they make chains. `lifetimes` are those that may share memory, in order of
// definition.
std::vector<Handover> find_handovers(const Program& program, const AliasAnalysis& aliases,
                                     std::span<const BufferLifetime> lifetimes);

}  // namespace hostjit
