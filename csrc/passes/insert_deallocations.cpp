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

}  // namespace

void insert_deallocations(Program& program) {
  Region& body = program.body();
  std::erase_if(body, [](const auto& op) { return op->template is<Deallocate>(); });

  const AliasAnalysis aliases(program);
  std::vector<Value*> buffers;
  std::unordered_map<const Value*, Op*> last_use;
  for (const auto& op : body) {
    for_each_operand(*op, [&](Value* value, Access) {
      for (const Value* root : aliases.roots(value)) last_use[root] = op.get();
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

}  // namespace hostjit
