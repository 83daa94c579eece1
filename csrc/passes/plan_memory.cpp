// SPDX-License-Identifier: Apache-2.0
#include "passes/plan_memory.h"

#include <algorithm>

#include "passes/buffer_lifetimes.h"

namespace hostjit {
namespace {

// The arena of a frame is CPU memory that the next call uses again.
bool may_live_in_arena(const BufferLifetime& lifetime) {
  return !lifetime.escapes && lifetime.buffer->tensor_type().device.type == DeviceType::kCPU;
}

}  // namespace

void plan_memory(Program& program) {
  for (Region* region : {&program.init(), &program.body()}) {
    for (const auto& op : *region) {
      if (auto* allocate = op->get_if<Allocate>()) allocate->offset = -1;
    }
  }
  std::vector<BufferLifetime> lifetimes = buffer_lifetimes(program, AliasAnalysis(program));
  std::erase_if(lifetimes, [](const auto& lifetime) { return !may_live_in_arena(lifetime); });
  std::vector<LiveBytes> live;
  live.reserve(lifetimes.size());
  for (const BufferLifetime& lifetime : lifetimes) live.push_back(lifetime.live);

  ArenaPlan plan;
  const ArenaPlacement placement = place_in_arena(live, plan.alignment);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    lifetimes[i].buffer->producer()->get_if<Allocate>()->offset = placement.offsets[i];
  }
  plan.bytes = placement.bytes;
  plan.lower_bound = most_bytes_live(live);
  program.set_arena(plan);
}

}  // namespace hostjit
