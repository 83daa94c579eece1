// SPDX-License-Identifier: Apache-2.0
#include "passes/late_writes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ir/effects.h"
#include "ir/visitor.h"
#include "passes/alias_analysis.h"

namespace hostjit {
namespace {

bool writes_input(const Op& op, const AliasAnalysis& aliases) {
  bool result = false;
  const auto look = [&](const Op& part) {
    for_each_operand(part, [&](const Value* value, Access access) {
      if (!writes(access)) return;
      result = result || std::ranges::any_of(aliases.roots(value), [&](const Value* root) {
                 return aliases.is_input(root);
               });
    });
  };
  look(op);
  for_each_region(
      op, [&](std::string_view, const NestedRegion& region) { for_each_op(*region, look); });
  return result;
}

// An operator of ATen that neither returns nor writes anything does nothing but raise.
bool is_check(const Op& op) {
  const auto* call = op.get_if<AtenCall>();
  return call != nullptr && call->target.starts_with("aten::") && call->mutated.empty() &&
         call->returned().empty();
}

// What a user's kernel does is not known.
bool has_effect(const Op& op, const Program& program) {
  const auto* launch = op.get_if<LaunchKernel>();
  if (launch != nullptr) return has_signature(program.kernels().at(launch->kernel));
  if (is_check(op)) return false;
  return !op.is<Deallocate>() && !is_removable(op);
}

// Operators that compute with whatever is in their tensors, behind which lowering writes in place.
constexpr std::array<std::string_view, 4> kNeverFail = {
    "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::convolution", "aten::dot",
    "aten::mv"};

// Plain work, whatever the values of tensors are. Memory may run out.
bool cannot_fail(const Op& op) {
  if (const auto* launch = op.get_if<LaunchKernel>()) return launch->errors.empty();
  if (const auto* call = op.get_if<AtenCall>()) {
    return call->mutated.empty() && std::ranges::find(kNeverFail, call->target) != kNeverFail.end();
  }
  return op.is<Allocate>() || op.is<Deallocate>() || op.is<Copy>() || op.is<Fill>() ||
         op.is<View>() || op.is<Size>() || op.is<IndexConstant>() || op.is<IndexBinary>() ||
         op.is<FloatConstant>() || op.is<Item>() || op.is<Matmul>() || op.is<Linear>() ||
         op.is<Bmm>() || op.is<Addmm>() || op.is<Baddbmm>();
}

}  // namespace

bool writes_inputs_last(const Program& program) {
  if (program.cuda_device()) return false;
  const AliasAnalysis aliases(program);
  bool has_written = false;
  for (const auto& op : program.body()) {
    has_written = has_written || writes_input(*op, aliases);
    if (has_effect(*op, program) || (has_written && !cannot_fail(*op))) return false;
  }
  return true;
}

}  // namespace hostjit
