// SPDX-License-Identifier: Apache-2.0
#include "passes/alias_analysis.h"

#include <algorithm>

#include "ir/effects.h"
#include "ir/visitor.h"

namespace hostjit {

AliasAnalysis::AliasAnalysis(const Program& program) {
  for (Value* input : program.inputs()) {
    inputs_.insert(input);
    if (input->is_tensor()) roots_[input] = {input};
  }
  for (const Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) { add_results(op); });
  }
  for (const Value* output : program.outputs()) {
    const std::vector<Value*>& reached = roots(output);
    escaping_.insert(reached.begin(), reached.end());
  }
}

void AliasAnalysis::add_results(const Op& op) {
  std::vector<Value*> shared;
  for (const Value* operand : aliased_operands(op)) {
    for (Value* root : roots(operand)) {
      if (std::ranges::find(shared, root) == shared.end()) shared.push_back(root);
    }
  }
  for_each_result(op, [&](Value* result, ResultKind kind) {
    switch (kind) {
      case ResultKind::kAllocated:
      case ResultKind::kConstant: roots_[result] = {result}; break;
      case ResultKind::kAlias: roots_[result] = shared; break;
      case ResultKind::kOwned:
        roots_[result] = shared;
        roots_[result].push_back(result);
        break;
      case ResultKind::kScalar: break;
    }
  });
}

const std::vector<Value*>& AliasAnalysis::roots(const Value* value) const {
  static const std::vector<Value*> kNone;
  const auto found = roots_.find(value);
  return found == roots_.end() ? kNone : found->second;
}

bool AliasAnalysis::share_root(const Value* a, const Value* b) const {
  return std::ranges::find_first_of(roots(a), roots(b)) != roots(a).end();
}

bool AliasAnalysis::may_alias(const Value* a, const Value* b) const {
  const auto from_input = [&](const Value* value) {
    return std::ranges::any_of(roots(value), [&](const Value* root) { return is_input(root); });
  };
  return share_root(a, b) || (from_input(a) && from_input(b));
}

}  // namespace hostjit
