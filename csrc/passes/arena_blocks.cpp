// SPDX-License-Identifier: Apache-2.0
#include "passes/arena_blocks.h"

#include <algorithm>
#include <limits>

#include "passes/buffer_lifetimes.h"

namespace hostjit {

ArenaBlocks::ArenaBlocks(const Program& program) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  blocks_.resize(static_cast<size_t>(program.arena().blocks), {0, kNever, 0});
  for (const BufferLifetime& lifetime : buffer_lifetimes(program, AliasAnalysis(program))) {
    const int64_t offset = lifetime.buffer->producer()->get_if<Allocate>()->offset;
    if (offset < 0) continue;
    const auto block = static_cast<size_t>(offset);
    buffers_.push_back({lifetime.buffer, block});
    LiveBytes& live = blocks_.at(block);
    live.begin = std::min(live.begin, lifetime.live.begin);
    live.end = std::max(live.end, lifetime.live.end);
  }
}

ArenaPlacement ArenaBlocks::place(std::span<const int64_t> bytes, int64_t alignment) const {
  return place_in_arena(with(bytes), alignment, Effort::kQuick);
}

int64_t ArenaBlocks::lower_bound(std::span<const int64_t> bytes) const {
  return most_bytes_live(with(bytes));
}

std::vector<LiveBytes> ArenaBlocks::with(std::span<const int64_t> bytes) const {
  std::vector<LiveBytes> blocks = blocks_;
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].bytes = bytes[i];
  return blocks;
}

}  // namespace hostjit
