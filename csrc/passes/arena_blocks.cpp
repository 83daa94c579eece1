// SPDX-License-Identifier: Apache-2.0
#include "passes/arena_blocks.h"

#include <algorithm>
#include <limits>

#include "passes/buffer_lifetimes.h"
#include "passes/stream_lifetimes.h"

namespace hostjit {
namespace {

int64_t planned_offset(const BufferLifetime& lifetime) {
  return lifetime.buffer->producer()->get_if<Allocate>()->offset;
}

}  // namespace

ArenaBlocks::ArenaBlocks(const Program& program, Device device) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const AliasAnalysis aliases(program);
  std::vector<BufferLifetime> lifetimes = buffer_lifetimes(program, aliases);
  std::erase_if(lifetimes, [&](const BufferLifetime& lifetime) {
    return planned_offset(lifetime) < 0 || lifetime.buffer->tensor_type().device != device;
  });
  std::vector<int64_t> streams(lifetimes.size(), 0);
  int64_t num_blocks = program.arena().blocks;
  if (device.type == DeviceType::kCUDA) {
    num_blocks = program.device_arena().blocks;
    streams = extend_over_streams(program, aliases, lifetimes);
  }
  blocks_.resize(static_cast<size_t>(num_blocks), {0, kNever, 0});
  streams_.resize(blocks_.size(), 0);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const auto block = static_cast<size_t>(planned_offset(lifetimes[i]));
    buffers_.push_back({lifetimes[i].buffer, block});
    LiveBytes& live = blocks_.at(block);
    live.begin = std::min(live.begin, lifetimes[i].live.begin);
    live.end = std::max(live.end, lifetimes[i].live.end);
    streams_[block] = streams[i];
  }
}

ArenaPlacement ArenaBlocks::place(std::span<const int64_t> bytes, int64_t alignment) const {
  return place_in_arena(with(bytes), streams_, alignment, Effort::kQuick);
}

int64_t ArenaBlocks::lower_bound(std::span<const int64_t> bytes) const {
  return most_bytes_live(with(bytes), streams_);
}

std::vector<LiveBytes> ArenaBlocks::with(std::span<const int64_t> bytes) const {
  std::vector<LiveBytes> blocks = blocks_;
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].bytes = bytes[i];
  return blocks;
}

}  // namespace hostjit
