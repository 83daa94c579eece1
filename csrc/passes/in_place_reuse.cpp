// SPDX-License-Identifier: Apache-2.0
#include "passes/in_place_reuse.h"

#include <algorithm>
#include <unordered_map>

#include "ir/effects.h"

namespace hostjit {
namespace {

// How many operands of `op` may refer to the memory of `root`.
size_t num_uses(const Op& op, const Value* root, const AliasAnalysis& aliases) {
  return std::ranges::count_if(operand_uses(op), [&](const OperandUse& use) {
    const std::vector<Value*>& roots = aliases.roots(use.value);
    return std::ranges::find(roots, root) != roots.end();
  });
}

// `before` ends and `after` begins with what the op at `instant` does.
bool meet(const BufferLifetime& before, const BufferLifetime& after, int64_t instant) {
  return !before.is_persistent && before.last_use == instant && after.first_use == instant &&
         before.live.begin < after.live.begin && before.live.bytes == after.live.bytes &&
         before.live.bytes > 0;
}

}  // namespace

std::vector<Handover> find_handovers(const Program& program, const AliasAnalysis& aliases,
                                     std::span<const BufferLifetime> lifetimes) {
  std::unordered_map<const Value*, size_t> positions;
  for (size_t i = 0; i < lifetimes.size(); ++i) positions[lifetimes[i].buffer] = i;
  std::vector<Handover> handovers;
  std::vector<bool> gives(lifetimes.size(), false);
  std::vector<bool> takes(lifetimes.size(), false);
  int64_t instant = 0;
  for (const auto& op : program.body()) {
    ++instant;
    for (const auto& [read, written] : in_place_pairs(*op)) {
      const auto before = positions.find(read);
      const auto after = positions.find(written);
      if (before == positions.end() || after == positions.end()) continue;
      if (gives[before->second] || takes[after->second]) continue;
      if (!meet(lifetimes[before->second], lifetimes[after->second], instant)) continue;
      if (num_uses(*op, read, aliases) > 1 || num_uses(*op, written, aliases) > 1) continue;
      gives[before->second] = takes[after->second] = true;
      handovers.push_back({before->second, after->second});
    }
  }
  return handovers;
}

}  // namespace hostjit
