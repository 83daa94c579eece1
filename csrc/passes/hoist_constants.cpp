// SPDX-License-Identifier: Apache-2.0
#include "passes/hoist_constants.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/effects.h"
#include "ir/visitor.h"
#include "passes/alias_analysis.h"

namespace hostjit {
namespace {

// Costs run time: writes memory, or makes a tensor that hostjit did not allocate.
bool is_work(const Op& op) {
  bool result = false;
  for_each_operand(op, [&](const Value*, Access access) { result |= writes(access); });
  for_each_result(op, [&](const Value*, ResultKind kind) { result |= kind == ResultKind::kOwned; });
  return result;
}

// Sizes that depend on those of a call's inputs: every row would hold what init made for it.
bool has_symbol(const Op& op) {
  bool result = false;
  const auto look_at = [&](const Value* value) {
    result |= value->is_tensor() && !value->tensor_type().is_static();
  };
  for_each_operand(op, [&](const Value* value, Access) { look_at(value); });
  for_each_result(op, [&](const Value* value, ResultKind) { look_at(value); });
  for_each_dim(op, [&](const Dim& dim) { result |= !dim.is_constant(); });
  return result;
}

// The largest set of ops of the body that may run in init instead, found by striking out ops until
// none of the rest depends on one that stays.
class HoistableOps {
 public:
  explicit HoistableOps(const Program& program) : aliases_(program) {
    for (const auto& op : program.init()) {
      for_each_result(*op, [&](const Value* value, ResultKind) { init_values_.insert(value); });
    }
    int64_t position = 0;
    for (const auto& op : program.body()) {
      if (op->is<Deallocate>()) continue;
      add_uses(*op, position++);
      const bool has_place = is_removable(*op) && !has_regions(*op) && !reads_number(*op);
      if (has_place) hoistable_.insert(op.get());
    }
    while (strike_out(program.body())) {
    }
  }

  // The hoistable work and what it needs.
  std::unordered_set<const Op*> ops_to_move(const Region& body) const {
    std::unordered_set<const Op*> moved;
    for (const auto& op : std::views::reverse(body)) {
      if (!hoistable_.contains(op.get()) || (!is_work(*op) && !moved.contains(op.get()))) continue;
      moved.insert(op.get());
      for_each_operand(*op, [&](const Value* value, Access) {
        if (hoistable_.contains(value->producer())) moved.insert(value->producer());
      });
    }
    return moved;
  }

 private:
  struct Use {
    const Op* op;
    int64_t position;
  };
  struct RootUses {
    std::vector<Use> reads;
    std::vector<Use> writes;
  };

  // What the ops of its regions use, `op` uses.
  void add_uses(const Op& op, int64_t position) {
    const auto add = [&](const Op& user) {
      for_each_operand(user, [&](const Value* value, Access access) {
        for (const Value* root : aliases_.roots(value)) {
          if (reads(access)) uses_[root].reads.push_back({&op, position});
          if (writes(access)) uses_[root].writes.push_back({&op, position});
        }
      });
    };
    add(op);
    for_each_region(
        op, [&](std::string_view, const NestedRegion& region) { for_each_op(*region, add); });
  }

  // True when some op left the set.
  bool strike_out(const Region& body) {
    const size_t before = hoistable_.size();
    for (const auto& op : body) {
      if (hoistable_.contains(op.get()) && !may_move(*op)) hoistable_.erase(op.get());
    }
    return hoistable_.size() != before;
  }

  bool may_move(const Op& op) const {
    bool result = !has_symbol(op);
    for_each_operand(op, [&](const Value* value, Access access) {
      result = result && is_available(value);
      for (const Value* root : aliases_.roots(value)) {
        if (writes(access)) result = result && hoistable_.contains(root->producer());
        if (reads(access) || writes(access)) result = result && is_settled(root);
      }
    });
    for_each_result(op, [&](const Value* value, ResultKind kind) {
      if (kind == ResultKind::kAllocated || kind == ResultKind::kOwned) {
        result = result && !aliases_.escapes(value) && is_settled(value);
      }
    });
    return result;
  }

  bool is_available(const Value* value) const {
    return init_values_.contains(value) || hoistable_.contains(value->producer());
  }

  // True when the memory of `root` has its last contents before any op that stays looks at it.
  bool is_settled(const Value* root) const {
    if (aliases_.is_input(root)) return false;
    const auto found = uses_.find(root);
    if (found == uses_.end()) return true;
    const RootUses& uses = found->second;
    const auto stays = [&](const Use& use) { return !hoistable_.contains(use.op); };
    if (std::ranges::any_of(uses.writes, stays)) return false;
    return uses.writes.empty() || std::ranges::none_of(uses.reads, [&](const Use& read) {
             return stays(read) && read.position < uses.writes.back().position;
           });
  }

  AliasAnalysis aliases_;
  std::unordered_set<const Value*> init_values_;
  std::unordered_map<const Value*, RootUses> uses_;  // in the body, in order
  std::unordered_set<const Op*> hoistable_;
};

}  // namespace

void hoist_constants(Program& program) {
  Region& body = program.body();
  const std::unordered_set<const Op*> moved = HoistableOps(program).ops_to_move(body);
  for (auto position = body.begin(); position != body.end();) {
    const auto next = std::next(position);
    const auto* deallocate = (*position)->get_if<Deallocate>();
    if (deallocate && moved.contains(deallocate->buffer->producer())) {
      body.erase(position);
    } else if (moved.contains(position->get())) {
      program.init().splice(program.init().end(), body, position);
    }
    position = next;
  }
}

}  // namespace hostjit
