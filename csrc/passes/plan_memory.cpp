// SPDX-License-Identifier: Apache-2.0
#include "passes/plan_memory.h"

#include <algorithm>
#include <span>
#include <vector>

#include "ir/visitor.h"
#include "passes/in_place_reuse.h"

namespace hostjit {
namespace {

// The arena of a frame is CPU memory that the next call uses again.
bool may_live_in_arena(const BufferLifetime& lifetime) {
  return !lifetime.escapes && lifetime.buffer->tensor_type().device.type == DeviceType::kCPU;
}

// What is placed: a buffer, or buffers of which each has the memory of the one before.
struct SharedBlocks {
  std::vector<LiveBytes> blocks;
  std::vector<size_t> block_of;  // by lifetime
};

SharedBlocks share_blocks(std::span<const BufferLifetime> lifetimes,
                          std::span<const Handover> handovers) {
  constexpr size_t kNone = ~size_t{0};
  std::vector<size_t> before(lifetimes.size(), kNone);
  for (const Handover& handover : handovers) before[handover.after] = handover.before;
  SharedBlocks shared;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const LiveBytes& live = lifetimes[i].live;
    if (before[i] == kNone) {
      shared.block_of.push_back(shared.blocks.size());
      shared.blocks.push_back(live);
      continue;
    }
    // Defined later, so that its block is known.
    const size_t block = shared.block_of[before[i]];
    shared.block_of.push_back(block);
    shared.blocks[block].end = std::max(shared.blocks[block].end, live.end);
  }
  return shared;
}

}  // namespace

void plan_memory(Program& program) {
  for (Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [](Op& op) {
      if (auto* allocate = op.get_if<Allocate>()) allocate->offset = -1;
    });
  }
  const AliasAnalysis aliases(program);
  std::vector<BufferLifetime> lifetimes = buffer_lifetimes(program, aliases);
  std::erase_if(lifetimes, [](const auto& lifetime) { return !may_live_in_arena(lifetime); });
  const bool is_symbolic = program.is_symbolic();
  // The arena serves one row after another, which would lose what init left there.
  if (is_symbolic) std::erase_if(lifetimes, &BufferLifetime::is_persistent);
  const SharedBlocks shared = share_blocks(lifetimes, find_handovers(program, aliases, lifetimes));

  ArenaPlan plan;
  if (is_symbolic) {
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      lifetimes[i].buffer->producer()->get_if<Allocate>()->offset =
          static_cast<int64_t>(shared.block_of[i]);
    }
    plan.blocks = static_cast<int64_t>(shared.blocks.size());
    program.set_arena(plan);
    return;
  }
  const ArenaPlacement placement = place_in_arena(shared.blocks, plan.alignment);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    lifetimes[i].buffer->producer()->get_if<Allocate>()->offset =
        placement.offsets[shared.block_of[i]];
  }
  plan.bytes = placement.bytes;
  plan.lower_bound = most_bytes_live(shared.blocks);
  program.set_arena(plan);
}

}  // namespace hostjit
