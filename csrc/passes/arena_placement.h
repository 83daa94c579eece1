// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hostjit {

// A buffer that is alive at the instants begin <= t < end.
struct LiveBytes {
  int64_t bytes = 0;
  int64_t begin = 0;
  int64_t end = 0;

  bool overlaps(const LiveBytes& other) const { return begin < other.end && other.begin < end; }
};

struct ArenaPlacement {
  std::vector<int64_t> offsets;  // one per buffer
  int64_t bytes = 0;
};

// The most bytes alive at one instant: no placement needs less. With `lanes`, one per buffer, those
// of each lane are added up.
int64_t most_bytes_live(std::span<const LiveBytes> buffers);
int64_t most_bytes_live(std::span<const LiveBytes> buffers, std::span<const int64_t> lanes);

// How long a placement may take.
enum class Effort {
  kQuick,  // a few greedy orders: linear in the buffers that live together, per buffer
  kBest,
};

// Gives each buffer an offset, a multiple of `alignment`, such that buffers alive at one instant
// share no byte. The best of several greedy orders and fits and, where those miss the lower bound,
// of repairs that place first what came to lie on top. Quadratic in the number of buffers; stops as
// soon as the bound is met. Empty buffers get offset 0.
ArenaPlacement place_in_arena(std::span<const LiveBytes> buffers, int64_t alignment,
                              Effort effort = Effort::kBest);
// The same where buffers of different `lanes`, one per buffer, share no byte: lane follows lane.
ArenaPlacement place_in_arena(std::span<const LiveBytes> buffers, std::span<const int64_t> lanes,
                              int64_t alignment, Effort effort = Effort::kBest);

}  // namespace hostjit
