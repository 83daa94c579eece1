// SPDX-License-Identifier: Apache-2.0
#include "runtime/aten_call.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <sstream>

#include "runtime/freed_memory.h"
#include "runtime/literal_to_ivalue.h"
#include "runtime/tensor_header.h"
#include "runtime/torch_types.h"
#include "support/check.h"

namespace hostjit {
namespace {

c10::OperatorHandle find_operator(const std::string& target) {
  const size_t scope = target.find("::");
  HOSTJIT_CHECK(scope != std::string::npos, "aten_call '", target,
                "': expected a name such as aten::sum.dim_IntList");
  const size_t dot = target.find('.', scope);
  const std::string name = target.substr(0, dot);
  std::string overload = dot == std::string::npos ? "" : target.substr(dot + 1);
  auto& dispatcher = c10::Dispatcher::singleton();
  auto found = dispatcher.findSchema({name, overload});
  // Python calls the overload without a name "default".
  if (!found && overload == "default") found = dispatcher.findSchema({name, ""});
  HOSTJIT_CHECK(found.has_value(), "aten_call '", target, "': PyTorch has no such operator");
  return *found;
}

bool has_operand(const Literal& literal) {
  if (std::holds_alternative<Literal::Operand>(literal.value)) return true;
  const auto* list = std::get_if<Literal::List>(&literal.value);
  return list != nullptr && std::any_of(list->begin(), list->end(), has_operand);
}

// Strides that no element depends on do not count.
bool same_strides(at::IntArrayRef sizes, at::IntArrayRef a, at::IntArrayRef b) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] != 1 && a[dim] != b[dim]) return false;
  }
  return true;
}

void append_results(const c10::IValue& value, std::vector<at::Tensor>& results) {
  if (value.isTensor()) {
    results.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
  } else {
    results.emplace_back();  // a number, a string or none: nothing a slot can hold
  }
}

// Memory of its own, with the same sizes and strides.
bool is_none(const Literal& literal) {
  return std::holds_alternative<std::monostate>(literal.value);
}

at::Tensor copy_of(const at::Tensor& tensor) {
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  copy.copy_(tensor);
  return copy;
}

bool returns_alias(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& returned) {
    return returned.alias_info() != nullptr;
  });
}

}  // namespace

AtenCallSite::AtenCallSite(const AtenCallSpec& spec, const std::vector<SlotSpec>& slots)
    : target_(spec.target),
      operand_is_tensor_(spec.operand_is_tensor),
      operand_is_f64_(spec.operand_is_f64),
      result_slots_(spec.result_slots),
      slots_(slots),
      op_(find_operator(spec.target)),
      declares_alias_(returns_alias(op_.schema())) {
  const std::vector<c10::Argument>& schema = op_.schema().arguments();
  if (schema.size() != spec.arguments.size()) {
    fail(concat("has ", spec.arguments.size(), " arguments, expected the ", schema.size(), " of ",
                c10::toString(op_.schema())));
  }
  for (size_t i = 0; i < schema.size(); ++i) {
    const c10::TypePtr type = schema[i].real_type();
    if (is_none(spec.arguments[i]) && type->kind() == c10::TypeKind::TensorType) {
      // As PyTorch takes None from Python: gradients of attention have a bias that may be missing.
      arguments_.emplace_back().constant = at::Tensor();
      continue;
    }
    try {
      arguments_.push_back(make_argument(spec.arguments[i], type, schema[i].N()));
    } catch (const LiteralMismatch&) {
      fail(concat("argument '", schema[i].name(), "' is ", to_string(spec.arguments[i]),
                  ", expected ", type->str()));
    }
  }
  for (const int64_t slot : result_slots_) {
    if (slot >= 0 && slots_[slot].type.device == Device{}) {
      keep_freed_memory(extent_in_bytes(slots_[slot].type));
    }
  }
}

AtenCallSite::Argument AtenCallSite::make_argument(const Literal& literal, const c10::TypePtr& type,
                                                   std::optional<int32_t> list_size) const {
  Argument argument;
  argument.type = type;
  if (!has_operand(literal)) {
    argument.constant = to_ivalue(literal, *type, list_size);
    return argument;
  }
  const c10::Type& inner = without_optional(*type);
  if (const auto* operand = std::get_if<Literal::Operand>(&literal.value)) {
    const auto num_operands = static_cast<int64_t>(operand_is_tensor_.size());
    if (operand->index < 0 || operand->index >= num_operands) {
      fail(concat("refers to operand $", operand->index, ", but has ", num_operands, " operands"));
    }
    if (inner.kind() == c10::TypeKind::ListType && list_size) {
      // One value where a list of known length is expected stands for every element.
      argument.type = inner.containedType(0);
      argument.elements.assign(*list_size, make_argument(literal, argument.type, std::nullopt));
      return argument;
    }
    const bool wants_tensor = inner.kind() == c10::TypeKind::TensorType;
    if (operand_is_tensor_[operand->index] && !wants_tensor) throw LiteralMismatch();
    if (!operand_is_tensor_[operand->index]) {  // only checks the type
      scalar_to_ivalue(is_f64(operand->index) ? at::Scalar(0.0) : at::Scalar(int64_t{0}), *type);
    }
    argument.operand = operand->index;
    return argument;
  }
  if (inner.kind() != c10::TypeKind::ListType) throw LiteralMismatch();
  argument.type = inner.containedType(0);
  for (const Literal& element : std::get<Literal::List>(literal.value)) {
    argument.elements.push_back(make_argument(element, argument.type, std::nullopt));
  }
  return argument;
}

c10::IValue AtenCallSite::value_of(const Argument& argument, void* const* operands) const {
  if (!argument.elements.empty()) {
    auto list = make_list(argument.type);
    list.reserve(argument.elements.size());
    for (const Argument& element : argument.elements) list.push_back(value_of(element, operands));
    return list;
  }
  if (argument.operand < 0) return argument.constant;
  const void* operand = operands[argument.operand];
  if (operand_is_tensor_[argument.operand]) return *static_cast<const at::Tensor*>(operand);
  return scalar_to_ivalue(scalar(argument.operand, operands), *argument.type);
}

at::Scalar AtenCallSite::scalar(int64_t operand, void* const* operands) const {
  if (is_f64(operand)) return *static_cast<const double*>(operands[operand]);
  return *static_cast<const int64_t*>(operands[operand]);
}

std::vector<at::Tensor> AtenCallSite::run(void* const* operands) const {
  torch::jit::Stack stack;
  // Results replace the arguments on the stack.
  stack.reserve(std::max(arguments_.size(), op_.schema().returns().size()));
  for (const Argument& argument : arguments_) stack.push_back(value_of(argument, operands));
  op_.callBoxed(stack);
  std::vector<at::Tensor> results;
  results.reserve(result_slots_.size());
  for (const c10::IValue& value : stack) append_results(value, results);
  if (results.size() != result_slots_.size()) {
    fail(concat("returned ", results.size(), " results, expected ", result_slots_.size()));
  }
  for (at::Tensor& result : results) separate_from_operands(result, operands);
  return results;
}

void AtenCallSite::separate_from_operands(at::Tensor& result, void* const* operands) const {
  if (declares_alias_ || !result.defined() || !result.has_storage()) return;
  for (size_t i = 0; i < operand_is_tensor_.size(); ++i) {
    if (!operand_is_tensor_[i]) continue;
    if (result.is_alias_of(*static_cast<const at::Tensor*>(operands[i]))) {
      result = copy_of(result);
      return;
    }
  }
}

void AtenCallSite::check_result(size_t index, const TensorSpec& expected,
                                at::Tensor& result) const {
  const auto require = [&](bool condition, auto has, auto expects) {
    if (condition) return;
    std::ostringstream message;
    message << "result " << index << ' ' << has() << ", expected " << expects();
    fail(message.str());
  };
  require(result.defined(), [] { return "is no tensor"; }, [] { return "a tensor"; });
  require(
      result.scalar_type() == to_torch(expected.dtype),
      [&] {
        const auto found = dtype_from_torch(result.scalar_type());
        return concat("has dtype ",
                      found ? to_string(*found) : c10::toString(result.scalar_type()));
      },
      [&] { return to_string(expected.dtype); });
  require(
      result.device() == to_torch(expected.device),
      [&] { return concat("is on ", result.device().str()); },
      [&] { return to_string(expected.device); });
  require(
      result.layout() == c10::kStrided, [&] { return concat("has layout ", result.layout()); },
      [] { return "strided"; });
  require(
      result.sizes() == at::IntArrayRef(expected.sizes),
      [&] { return concat("has sizes ", result.sizes()); },
      [&] { return concat(at::IntArrayRef(expected.sizes)); });
  if (!same_strides(expected.sizes, result.strides(), expected.strides)) {
    // A fake tensor may be wrong about strides. Only the results of views can't be laid out anew.
    require(
        !declares_alias_, [&] { return concat("has strides ", result.strides()); },
        [&] { return concat(at::IntArrayRef(expected.strides)); });
    at::Tensor laid_out = at::empty_strided(expected.sizes, expected.strides, result.options());
    result = laid_out.copy_(result);
  }
  if (result.is_conj() || result.is_neg()) {
    result = copy_of(result);
  }
}

void AtenCallSite::fail(const std::string& message) const {
  throw_error(concat("aten_call '", target_, "': ", message));
}

}  // namespace hostjit
