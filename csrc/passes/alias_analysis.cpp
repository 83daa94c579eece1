// SPDX-License-Identifier: Apache-2.0
#include "passes/alias_analysis.h"

#include <algorithm>

#include "ir/effects.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

// Of a tensor that begins at byte `begin` of its root. Without elements it is a place, of a byte.
ByteRange bytes_from(int64_t begin, const Value* tensor) {
  const TensorType& type = tensor->tensor_type();
  if (!type.is_static()) return {.begin = begin};
  return {begin, begin + std::max<int64_t>(type.extent_in_bytes(), 1)};
}

}  // namespace

AliasAnalysis::AliasAnalysis(const Program& program) {
  for (Value* input : program.inputs()) {
    inputs_.insert(input);
    if (!input->is_tensor()) continue;
    roots_[input] = {input};
    bytes_[input] = bytes_from(0, input);
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
      case ResultKind::kConstant:
        roots_[result] = {result};
        bytes_[result] = bytes_from(0, result);
        break;
      case ResultKind::kAlias:
        roots_[result] = shared;
        if (const View* view = op.get_if<View>()) add_bytes(*view);
        break;
      case ResultKind::kOwned:
        if (shared.empty()) bytes_[result] = bytes_from(0, result);
        roots_[result] = shared;
        roots_[result].push_back(result);
        break;
      case ResultKind::kScalar: break;
    }
  });
}

void AliasAnalysis::add_bytes(const View& view) {
  const auto source = bytes_.find(view.source);
  if (source == bytes_.end() || !view.offset.is_constant()) return;
  const int64_t item = size_in_bytes(view.result->tensor_type().dtype);
  bytes_[view.result] = bytes_from(source->second.begin + view.offset.value * item, view.result);
}

const std::vector<Value*>& AliasAnalysis::roots(const Value* value) const {
  static const std::vector<Value*> kNone;
  const auto found = roots_.find(value);
  return found == roots_.end() ? kNone : found->second;
}

ByteRange AliasAnalysis::bytes_used(const Op& op, const Value* operand) const {
  if (op.is<AtenCall>()) return {};
  const auto found = bytes_.find(operand);
  return found == bytes_.end() ? ByteRange{} : found->second;
}

bool AliasAnalysis::share_root(const Value* a, const Value* b) const {
  return std::ranges::find_first_of(roots(a), roots(b)) != roots(a).end();
}

}  // namespace hostjit
