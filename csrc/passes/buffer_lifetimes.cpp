// SPDX-License-Identifier: Apache-2.0
#include "passes/buffer_lifetimes.h"

#include <algorithm>
#include <unordered_map>

#include "ir/visitor.h"

namespace hostjit {
namespace {

// Where the memory of each root is freed, and where it is used first and last.
struct UseInstants {
  std::unordered_map<const Value*, int64_t> freed;
  std::unordered_map<const Value*, int64_t> first_used;
  std::unordered_map<const Value*, int64_t> last_used;

  static int64_t find(const std::unordered_map<const Value*, int64_t>& instants,
                      const Value* root) {
    const auto found = instants.find(root);
    return found == instants.end() ? 0 : found->second;
  }
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
      for (const Value* root : aliases.roots(value)) {
        instants.first_used.try_emplace(root, instant);
        instants.last_used[root] = instant;
      }
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
    const int64_t last_use = UseInstants::find(instants.last_used, buffer);
    const auto freed = instants.freed.find(buffer);
    if (!is_persistent && freed != instants.freed.end()) {
      live.end = std::max(freed->second, last_use + 1);
    }
    lifetimes.push_back({.buffer = buffer,
                         .live = live,
                         .first_use = UseInstants::find(instants.first_used, buffer),
                         .last_use = last_use,
                         .is_persistent = is_persistent,
                         .escapes = aliases.escapes(buffer)});
  };
  for (const auto& op : program.init()) add(*op, /*is_persistent=*/true, /*begin=*/0);
  int64_t instant = 0;
  for (const auto& op : program.body()) add(*op, /*is_persistent=*/false, ++instant);
  return lifetimes;
}

}  // namespace hostjit
