// SPDX-License-Identifier: Apache-2.0
#include "passes/plan_memory.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "ir/visitor.h"
#include "passes/in_place_reuse.h"
#include "passes/stream_lifetimes.h"

namespace hostjit {
namespace {

// The arenas of a frame are memory that the next call uses again.
bool may_live_in_arena(const BufferLifetime& lifetime, Device device) {
  return !lifetime.escapes && lifetime.buffer->tensor_type().device == device;
}

// What is placed: a buffer, or buffers of which each has the memory of the one before.
struct SharedBlocks {
  std::vector<LiveBytes> blocks;
  std::vector<int64_t> streams;  // of each block
  std::vector<size_t> block_of;  // by lifetime
};

SharedBlocks share_blocks(std::span<const BufferLifetime> lifetimes,
                          std::span<const Handover> handovers, std::span<const int64_t> streams) {
  constexpr size_t kNone = ~size_t{0};
  std::vector<size_t> before(lifetimes.size(), kNone);
  for (const Handover& handover : handovers) before[handover.after] = handover.before;
  SharedBlocks shared;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const LiveBytes& live = lifetimes[i].live;
    if (before[i] == kNone) {
      shared.block_of.push_back(shared.blocks.size());
      shared.blocks.push_back(live);
      shared.streams.push_back(streams[i]);
      continue;
    }
    // Defined later, so that its block is known.
    const size_t block = shared.block_of[before[i]];
    shared.block_of.push_back(block);
    shared.blocks[block].end = std::max(shared.blocks[block].end, live.end);
  }
  return shared;
}

// Places the buffers on `device`.
ArenaPlan plan_arena(Program& program, Device device, int64_t alignment) {
  const AliasAnalysis aliases(program);
  std::vector<BufferLifetime> lifetimes = buffer_lifetimes(program, aliases);
  const bool is_symbolic = program.is_symbolic();
  // The arena serves one row after another, or moves to other streams: what init left there would
  // be lost.
  const bool keeps_init = !is_symbolic && device.type == DeviceType::kCPU;
  std::erase_if(lifetimes, [&](const BufferLifetime& lifetime) {
    return !may_live_in_arena(lifetime, device) || (lifetime.is_persistent && !keeps_init);
  });
  const std::vector<int64_t> streams = device.type == DeviceType::kCPU
                                           ? std::vector<int64_t>(lifetimes.size(), 0)
                                           : extend_over_streams(program, aliases, lifetimes);
  const SharedBlocks shared =
      share_blocks(lifetimes, find_handovers(program, aliases, lifetimes), streams);

  ArenaPlan plan;
  if (is_symbolic) {
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      lifetimes[i].buffer->producer()->get_if<Allocate>()->offset =
          static_cast<int64_t>(shared.block_of[i]);
    }
    plan.blocks = static_cast<int64_t>(shared.blocks.size());
    return plan;
  }
  if (lifetimes.empty()) return plan;
  plan.alignment = alignment;
  const ArenaPlacement placement = place_in_arena(shared.blocks, shared.streams, alignment);
  plan.bytes = placement.bytes;
  plan.lower_bound = most_bytes_live(shared.blocks, shared.streams);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    lifetimes[i].buffer->producer()->get_if<Allocate>()->offset =
        placement.offsets[shared.block_of[i]];
  }
  return plan;
}

}  // namespace

void plan_memory(Program& program) {
  for (Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [](Op& op) {
      if (auto* allocate = op.get_if<Allocate>()) allocate->offset = -1;
    });
  }
  program.set_arena(plan_arena(program, Device{}, ArenaPlan{}.alignment));
  const std::optional<Device> device = program.cuda_device();
  program.set_device_arena(device ? plan_arena(program, *device, kDeviceArenaAlignment)
                                  : ArenaPlan{});
}

}  // namespace hostjit
