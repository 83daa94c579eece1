// SPDX-License-Identifier: Apache-2.0
#include "passes/buffer_lifetimes.h"

#include <algorithm>
#include <unordered_map>

#include "ir/effects.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

struct Uses {
  int64_t first = 0;
  int64_t last = 0;
};

// Numbers the ops of the body, a region's after the op around it and before its end, and notes
// where the memory of each root is made, used and freed.
class UseInstants {
 public:
  UseInstants(const Program& program, const AliasAnalysis& aliases) : aliases_(aliases) {
    number(program.body());
  }

  int64_t end() const { return instant_ + 1; }
  int64_t defined(const Op& op) const { return defined_.at(&op); }
  Uses uses(const Value* root) const {
    const auto found = uses_.find(root);
    return found == uses_.end() ? Uses{} : found->second;
  }
  // 0 when it is not freed.
  int64_t freed(const Value* root) const {
    const auto found = freed_.find(root);
    return found == freed_.end() ? 0 : found->second;
  }

 private:
  void number(const Region& region) {
    for (const auto& op : region) number(*op);
  }

  void number(const Op& op) {
    const int64_t begin = defined_[&op] = ++instant_;
    for_each_operand(op, [&](const Value* value, Access access) {
      if (access == Access::kFree) {
        freed_[value] = begin;
      } else {
        for (const Value* root : aliases_.roots(value)) use(root, begin, begin);
      }
    });
    if (!has_regions(op)) return;
    for_each_region(op, [&](std::string_view, const NestedRegion& region) { number(*region); });
    // As long as the regions run, over and over in a loop, they use the memory of outside.
    const int64_t end = ++instant_;
    const auto use_all = [&](const Op& user) {
      for_each_operand(user, [&](const Value* value, Access access) {
        if (access == Access::kFree) return;
        for (const Value* root : aliases_.roots(value)) {
          const auto made = root->producer() ? defined_.find(root->producer()) : defined_.end();
          if (made == defined_.end() || made->second < begin) use(root, begin, end);
        }
      });
    };
    use_all(op);
    for_each_region(
        op, [&](std::string_view, const NestedRegion& region) { for_each_op(*region, use_all); });
  }

  void use(const Value* root, int64_t first, int64_t last) {
    Uses& uses = uses_.try_emplace(root, Uses{first, last}).first->second;
    uses.first = std::min(uses.first, first);
    uses.last = std::max(uses.last, last);
  }

  const AliasAnalysis& aliases_;
  int64_t instant_ = 0;
  std::unordered_map<const Op*, int64_t> defined_;  // in the body
  std::unordered_map<const Value*, Uses> uses_;
  std::unordered_map<const Value*, int64_t> freed_;
};

}  // namespace

std::vector<BufferLifetime> buffer_lifetimes(const Program& program, const AliasAnalysis& aliases) {
  std::vector<BufferLifetime> lifetimes;
  const UseInstants instants(program, aliases);
  const auto add = [&](const Op& op, bool is_persistent) {
    const auto* allocate = op.get_if<Allocate>();
    if (!allocate) return;
    Value* buffer = allocate->result;
    const TensorType& type = buffer->tensor_type();
    LiveBytes live{type.is_static() ? type.extent_in_bytes() : 0,
                   is_persistent ? 0 : instants.defined(op), instants.end()};
    const Uses uses = instants.uses(buffer);
    const int64_t freed = instants.freed(buffer);
    if (!is_persistent && freed != 0) live.end = std::max(freed, uses.last + 1);
    lifetimes.push_back({.buffer = buffer,
                         .live = live,
                         .first_use = uses.first,
                         .last_use = uses.last,
                         .is_persistent = is_persistent,
                         .escapes = aliases.escapes(buffer)});
  };
  for_each_op(program.init(), [&](const Op& op) { add(op, /*is_persistent=*/true); });
  for_each_op(program.body(), [&](const Op& op) { add(op, /*is_persistent=*/false); });
  return lifetimes;
}

}  // namespace hostjit
