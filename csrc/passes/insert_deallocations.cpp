// SPDX-License-Identifier: Apache-2.0
#include "passes/insert_deallocations.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <ranges>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/visitor.h"
#include "passes/alias_analysis.h"
#include "support/check.h"

namespace hostjit {
namespace {

bool is_owned_by_program(ResultKind kind) {
  return kind == ResultKind::kAllocated || kind == ResultKind::kOwned;
}

// Ends the life of `donated`, of what the ops of one region made, and of what those of its regions
// made.
void insert_in(Region& body, const AliasAnalysis& aliases, const std::vector<Value*>& donated) {
  std::vector<Value*> buffers = donated;
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
      insert_in(*region, aliases, /*donated=*/{});
    });
    for_each_result(*op, [&](Value* result, ResultKind kind) {
      if (!is_owned_by_program(kind) || aliases.escapes(result)) return;
      buffers.push_back(result);
      last_use[result] = op.get();
    });
  }

  std::unordered_map<const Op*, std::vector<Value*>> dying;
  for (Value* buffer : buffers) {
    const auto found = last_use.find(buffer);
    if (found != last_use.end()) {
      dying[found->second].push_back(buffer);
    } else {
      body.push_front(std::make_unique<Op>(Op{Deallocate{.buffer = buffer}, ""}));
    }
  }
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

// In their order.
std::vector<Value*> donated_inputs(const Program& program) {
  std::unordered_set<const Value*> freed;
  for (const auto& op : program.body()) {
    if (const auto* deallocate = op->get_if<Deallocate>()) freed.insert(deallocate->buffer);
  }
  std::vector<Value*> donated;
  std::ranges::copy_if(program.inputs(), std::back_inserter(donated),
                       [&](const Value* input) { return freed.contains(input); });
  return donated;
}

}  // namespace

void insert_deallocations(Program& program) {
  const std::vector<Value*> donated = donated_inputs(program);
  erase_deallocations(program.body());
  insert_in(program.body(), AliasAnalysis(program), donated);
}

void donate_inputs(Program& program, const std::vector<size_t>& positions) {
  const AliasAnalysis aliases(program);
  for (const size_t position : positions) {
    HOSTJIT_CHECK(position < program.inputs().size(), "donate_inputs: input ", position,
                  " of a program with ", program.inputs().size());
    Value* input = program.inputs()[position];
    HOSTJIT_CHECK(input->is_tensor(), "donate_inputs: %", input->name(), " is no tensor");
    if (aliases.escapes(input)) continue;
    program.body().push_back(std::make_unique<Op>(Op{Deallocate{.buffer = input}, ""}));
  }
}

bool donates_inputs(const Program& program) { return !donated_inputs(program).empty(); }

}  // namespace hostjit
