// SPDX-License-Identifier: Apache-2.0
#include "passes/buffer_lifetimes.h"

#include <algorithm>
#include <unordered_map>

#include "ir/visitor.h"

namespace hostjit {
namespace {

// Where the memory of each root is freed, and where it is used last.
struct UseInstants {
  std::unordered_map<const Value*, int64_t> freed;
  std::unordered_map<const Value*, int64_t> last_used;
};

UseInstants use_instants(const Program& program, const AliasAnalysis& aliases) {
  UseInstants instants;
  int64_t instant = 0;
  for (const auto& op : program.body()) {
    ++instant;
    for_each_operand(*op, [&](const Value* value, Access access) {
      if (access == Access::kFree) {
        instants.freed[value] = instant;
        return;
      }
      for (const Value* root : aliases.roots(value)) instants.last_used[root] = instant;
    });
  }
  return instants;
}

}  // namespace

std::vector<BufferLifetime> buffer_lifetimes(const Program& program, const AliasAnalysis& aliases) {
  std::vector<BufferLifetime> lifetimes;
  const UseInstants instants = use_instants(program, aliases);
  const auto end = static_cast<int64_t>(program.body().size()) + 1;
  const auto add = [&](const Op& op, bool is_persistent, int64_t begin) {
    const auto* allocate = op.get_if<Allocate>();
    if (!allocate || !allocate->result->tensor_type().is_static()) return;
    Value* buffer = allocate->result;
    LiveBytes live{buffer->tensor_type().extent_in_bytes(), begin, end};
    const auto freed = instants.freed.find(buffer);
    if (!is_persistent && freed != instants.freed.end()) {
      const auto used = instants.last_used.find(buffer);
      live.end = std::max(freed->second, used == instants.last_used.end() ? 0 : used->second + 1);
    }
    lifetimes.push_back({buffer, live, is_persistent, aliases.escapes(buffer)});
  };
  for (const auto& op : program.init()) add(*op, /*is_persistent=*/true, /*begin=*/0);
  int64_t instant = 0;
  for (const auto& op : program.body()) add(*op, /*is_persistent=*/false, ++instant);
  return lifetimes;
}

}  // namespace hostjit
