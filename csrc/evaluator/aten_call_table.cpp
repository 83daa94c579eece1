// SPDX-License-Identifier: Apache-2.0
#include "evaluator/aten_call_table.h"

#include <unordered_set>

#include "ir/visitor.h"

namespace hostjit {
namespace {

std::unordered_set<const Value*> used_values(const Program& program) {
  std::unordered_set<const Value*> used(program.outputs().begin(), program.outputs().end());
  for (const Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) {
      for_each_operand(op, [&](const Value* value, Access access) {
        if (access != Access::kFree) used.insert(value);
      });
    });
  }
  return used;
}

}  // namespace

AtenCallTable::AtenCallTable(const Program& program) {
  const auto used = used_values(program);
  for (const Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) {
      const auto* call = op.get_if<AtenCall>();
      if (call == nullptr) return;
      Entry& entry = entries_[call];
      AtenCallSpec spec;
      spec.target = call->target;
      spec.arguments = call->arguments;
      for (const auto* operands : {&call->inputs, &call->mutated}) {
        for (const Value* operand : *operands) {
          spec.operand_is_tensor.push_back(operand->is_tensor());
          spec.operand_is_f64.push_back(std::holds_alternative<F64Type>(operand->type()));
        }
      }
      for (const Value* result : call->returned()) {
        if (result == nullptr || !used.contains(result)) {
          spec.result_slots.push_back(-1);
          continue;
        }
        const TensorType& type = result->tensor_type();
        spec.result_slots.push_back(static_cast<int64_t>(entry.slots.size()));
        entry.slots.push_back(
            {SlotKind::kCall, 0, {type.dtype, type.device, type.sizes(), type.static_strides()}});
        entry.results.push_back(result);
      }
      entry.site = std::make_unique<AtenCallSite>(spec, entry.slots);
    });
  }
}

void AtenCallTable::call(const AtenCall& op, const DeviceStreams& streams,
                         ValueTable& values) const {
  const Entry& entry = entries_.at(&op);
  std::vector<void*> operands;
  for (const auto* group : {&op.inputs, &op.mutated}) {
    for (const Value* operand : *group) operands.push_back(values.address(operand));
  }
  entry.site->call(operands.data(), [&](int64_t slot, at::Tensor result) {
    streams.note_made(result);
    values.set(entry.results[slot], std::move(result));
  });
}

}  // namespace hostjit
