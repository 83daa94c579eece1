// SPDX-License-Identifier: Apache-2.0
#include "passes/insert_deallocations.h"

#include <iterator>
#include <memory>
#include <ranges>
#include <unordered_map>
#include <vector>

#include "ir/visitor.h"
#include "passes/alias_analysis.h"

namespace hostjit {
namespace {

bool is_owned_by_program(ResultKind kind) {
  return kind == ResultKind::kAllocated || kind == ResultKind::kOwned;
}

// Ends the life of what the ops of one region made, and of what those of its regions made.
void insert_in(Region& body, const AliasAnalysis& aliases) {
  std::vector<Value*> buffers;
  std::unordered_map<const Value*, Op*> last_use;
  for (const auto& op : body) {
    const auto use = [&](const Op& user) {
      for_each_operand(user, [&](Value* value, Access) {
        for (const Value* root : aliases.roots(value)) last_use[root] = op.get();
      });
    };
    use(*op);
    for_each_region(*op, [&](std::string_view, NestedRegion& region) {
      for_each_op(*region, use);
      insert_in(*region, aliases);
    });
    for_each_result(*op, [&](Value* result, ResultKind kind) {
      if (!is_owned_by_program(kind) || aliases.escapes(result)) return;
      buffers.push_back(result);
      last_use[result] = op.get();
    });
  }

  std::unordered_map<const Op*, std::vector<Value*>> dying;
  for (Value* buffer : buffers) dying[last_use.at(buffer)].push_back(buffer);
  for (auto position = body.begin(); position != body.end(); ++position) {
    const auto found = dying.find(position->get());
    if (found == dying.end()) continue;
    const std::string location = (*position)->location;
    // An ATen result goes before the buffer that it may alias, which was made earlier.
    for (Value* buffer : found->second | std::views::reverse) {
      auto op = std::make_unique<Op>(Op{Deallocate{.buffer = buffer}, location});
      position = body.insert(std::next(position), std::move(op));
    }
  }
}

void erase_deallocations(Region& region) {
  std::erase_if(region, [](const auto& op) { return op->template is<Deallocate>(); });
  for (const auto& op : region) {
    for_each_region(*op,
                    [](std::string_view, NestedRegion& nested) { erase_deallocations(*nested); });
  }
}

}  // namespace

void insert_deallocations(Program& program) {
  erase_deallocations(program.body());
  insert_in(program.body(), AliasAnalysis(program));
}

}  // namespace hostjit
