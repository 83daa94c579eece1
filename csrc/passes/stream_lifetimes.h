// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "passes/buffer_lifetimes.h"

namespace hostjit {

// In a program with streams, what is done later in the text may run earlier. Memory belongs to the
// stream that is the first to use it, of which the number is returned for each buffer (0: the
// caller's), and LiveBytes::end moves to where that stream has waited for all uses by others.
// Buffers of one stream may share memory if their lives are apart; those of different streams may
// not. Without streams nothing changes, and all belong to the caller's.
std::vector<int64_t> extend_over_streams(const Program& program, const AliasAnalysis& aliases,
                                         std::vector<BufferLifetime>& lifetimes);

}  // namespace hostjit
