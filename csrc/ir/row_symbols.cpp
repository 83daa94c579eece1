// SPDX-License-Identifier: Apache-2.0
#include "ir/row_symbols.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <unordered_set>

#include "ir/visitor.h"

namespace hostjit {
namespace {

using Names = std::unordered_set<std::string>;

bool is_index_input(const Value* input) { return std::holds_alternative<IndexType>(input->type()); }

// The names of the values that types, offsets and grids of a program follow from.
Names names_in_dims(const Program& program) {
  Names names;
  const auto add_dim = [&](const Dim& dim) {
    if (!dim.is_constant()) names.insert(dim.symbol);
  };
  const auto add_value = [&](const Value* value) {
    if (!value->is_tensor()) return;
    std::ranges::for_each(value->tensor_type().dims, add_dim);
    std::ranges::for_each(value->tensor_type().strides, add_dim);
  };
  std::ranges::for_each(program.inputs(), add_value);
  const std::array regions = {&program.init(), &program.body()};
  for (const Region* region : regions) {
    for_each_op(*region, [&](const Op& op) {
      for_each_result(op, [&](const Value* value, ResultKind) { add_value(value); });
      for_each_dim(op, add_dim);
    });
  }
  for (const Region* region : std::views::reverse(regions)) {
    for (const auto& op : std::views::reverse(*region)) {
      const auto* binary = op->get_if<IndexBinary>();
      if (!binary || !binary->result || !names.contains(binary->result->name())) continue;
      for (const Value* operand : {binary->lhs, binary->rhs}) {
        if (operand) names.insert(operand->name());
      }
    }
  }
  return names;
}

// Null for what a verifier will refuse.
const Dim* dim_of(const Size& op) {
  const auto* type = op.source ? std::get_if<TensorType>(&op.source->type()) : nullptr;
  if (!type || !op.result || op.dim < 0 || op.dim >= type->rank()) return nullptr;
  return &type->dims[static_cast<size_t>(op.dim)];
}

bool defines_itself(const Size& op) {
  const Dim* dim = dim_of(op);
  return dim && !dim->is_constant() && dim->symbol == op.result->name();
}

}  // namespace

RowSymbols::RowSymbols(const Program& program) {
  add_index_inputs(program);
  // Input symbols first: an input may be asked for a size that another op defines.
  for (const auto& op : program.body()) {
    const auto* size = op->get_if<Size>();
    if (!size || !defines_itself(*size)) continue;
    const auto input = std::ranges::find(program.inputs(), size->source);
    if (input == program.inputs().end()) continue;
    add({.name = size->result->name(),
         .kind = Kind::kInput,
         .value = static_cast<int64_t>(sources_.size())});
    sources_.push_back({input - program.inputs().begin(), size->dim});
  }
  for (const Region* region : {&program.init(), &program.body()}) {
    for (const auto& op : *region) {
      if (const auto* size = op->get_if<Size>()) add(*size);
      if (const auto* constant = op->get_if<IndexConstant>(); constant && constant->result) {
        add({.name = constant->result->name(), .kind = Kind::kConstant, .value = constant->value});
      }
      if (const auto* binary = op->get_if<IndexBinary>()) add(*binary);
    }
  }
}

void RowSymbols::add_index_inputs(const Program& program) {
  const std::vector<Value*>& inputs = program.inputs();
  if (std::ranges::none_of(inputs, is_index_input)) return;
  const Names names = names_in_dims(program);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_index_input(inputs[i]) || !names.contains(inputs[i]->name())) continue;
    add({.name = inputs[i]->name(),
         .kind = Kind::kInput,
         .value = static_cast<int64_t>(sources_.size())});
    sources_.push_back({.input = static_cast<int64_t>(i)});
  }
}

void RowSymbols::add(Definition definition) {
  const auto [position, inserted] = numbers_.try_emplace(definition.name, definitions_.size());
  if (inserted) definitions_.push_back(std::move(definition));
}

void RowSymbols::add(const Size& op) {
  const Dim* dim = dim_of(op);
  if (!dim) return;
  if (dim->is_constant()) {
    return add({.name = op.result->name(), .kind = Kind::kConstant, .value = dim->value});
  }
  const std::optional<size_t> same = find(dim->symbol);
  if (!same) return;
  add({.name = op.result->name(), .kind = Kind::kSame, .value = static_cast<int64_t>(*same)});
}

void RowSymbols::add(const IndexBinary& op) {
  if (!op.lhs || !op.rhs || !op.result) return;
  const std::optional<size_t> lhs = find(op.lhs->name());
  const std::optional<size_t> rhs = find(op.rhs->name());
  if (!lhs || !rhs) return;
  add({.name = op.result->name(),
       .kind = Kind::kBinary,
       .value = static_cast<int64_t>(*lhs),
       .rhs = static_cast<int64_t>(*rhs),
       .operation = op.operation});
}

std::optional<size_t> RowSymbols::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

size_t RowSymbols::at(const std::string& name) const {
  const std::optional<size_t> found = find(name);
  HOSTJIT_ICHECK(found.has_value(), "no symbol ", name);
  return *found;
}

std::vector<std::string> RowSymbols::input_names() const {
  std::vector<std::string> names;
  for (const Definition& definition : definitions_) {
    if (definition.kind == Kind::kInput) names.push_back(definition.name);
  }
  return names;
}

std::vector<int64_t> RowSymbols::evaluate(std::span<const int64_t> inputs) const {
  std::vector<int64_t> values;
  values.reserve(definitions_.size());
  for (const Definition& definition : definitions_) {
    switch (definition.kind) {
      case Kind::kInput: values.push_back(inputs[definition.value]); break;
      case Kind::kConstant: values.push_back(definition.value); break;
      case Kind::kSame: values.push_back(values[definition.value]); break;
      case Kind::kBinary:
        values.push_back(
            apply(definition.operation, values[definition.value], values[definition.rhs]));
        break;
    }
  }
  return values;
}

}  // namespace hostjit
