// SPDX-License-Identifier: Apache-2.0
#include "ir/effects.h"

#include "ir/visitor.h"

namespace hostjit {

std::vector<OperandUse> operand_uses(const Op& op) {
  std::vector<OperandUse> uses;
  for_each_operand(op, [&](Value* value, Access access) { uses.push_back({value, access}); });
  return uses;
}

std::vector<Value*> results_of(const Op& op) {
  std::vector<Value*> results;
  for_each_result(op, [&](Value* value, ResultKind) { results.push_back(value); });
  return results;
}

std::vector<Value*> aliased_operands(const Op& op) {
  std::vector<Value*> aliased;
  if (const auto* call = op.get_if<AtenCall>()) {
    const auto num_inputs = static_cast<int64_t>(call->inputs.size());
    for (const int64_t i : call->aliases) {
      aliased.push_back(i < num_inputs ? call->inputs[i] : call->mutated[i - num_inputs]);
    }
    return aliased;
  }
  bool has_alias_result = false;
  for_each_result(op,
                  [&](Value*, ResultKind kind) { has_alias_result |= kind == ResultKind::kAlias; });
  if (!has_alias_result) return aliased;
  for_each_operand(op, [&](Value* value, Access access) {
    if (access == Access::kMetadata) aliased.push_back(value);
  });
  return aliased;
}

std::vector<InPlacePair> in_place_pairs(const Op& op) {
  std::vector<InPlacePair> pairs;
  const auto* launch = op.get_if<LaunchKernel>();
  if (!launch) return pairs;
  for (size_t i = 0; i < launch->in_place.size(); i += 2) {
    pairs.push_back(
        {launch->inputs[launch->in_place[i]], launch->outputs[launch->in_place[i + 1]]});
  }
  return pairs;
}

bool works_on_cuda(const Op& op) {
  bool result = false;
  const auto look_at = [&](const Value* value) {
    result |= value->is_tensor() && value->tensor_type().device.type == DeviceType::kCUDA;
  };
  for_each_operand(op, [&](const Value* value, Access access) {
    if (reads(access) || writes(access)) look_at(value);
  });
  for_each_result(op, [&](const Value* value, ResultKind kind) {
    if (kind == ResultKind::kOwned) look_at(value);
  });
  return result;
}

bool reads_number(const Op& op) {
  bool is_number = false;
  bool reads_memory = false;
  for_each_result(op,
                  [&](const Value*, ResultKind kind) { is_number |= kind == ResultKind::kScalar; });
  for_each_operand(op, [&](const Value* value, Access access) {
    reads_memory |= value->is_tensor() && reads(access);
  });
  return is_number && reads_memory;
}

bool has_regions(const Op& op) {
  bool result = false;
  for_each_region(op, [&](std::string_view, const NestedRegion&) { result = true; });
  return result;
}

int64_t num_nodes(const Region& region) {
  int64_t count = 0;
  for_each_op(region, [&](const Op&) { ++count; });
  return count;
}

bool is_removable(const Op& op) {
  if (op.info().has_side_effect) return false;
  if (const auto* call = op.get_if<AtenCall>()) return call->pure;
  bool result = true;
  for_each_region(op, [&](std::string_view, const NestedRegion& region) {
    for_each_op(*region, [&](const Op& nested) { result = result && is_removable(nested); });
  });
  return result;
}

}  // namespace hostjit
