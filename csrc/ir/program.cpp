// SPDX-License-Identifier: Apache-2.0
#include "ir/program.h"

#include <algorithm>

#include "ir/visitor.h"

namespace hostjit {
namespace {

// Maps values of one program to values of another while both are walked in step.
using ValueMap = std::unordered_map<const Value*, Value*>;

void clone_region(const Region& source, Region& target, Program& program, ValueMap& map) {
  for (const auto& op : source) {
    auto copy = std::make_unique<Op>(*op);
    for_each_operand(*copy, [&](Value*& value, Access) { value = map.at(value); });
    for_each_result(*copy, [&](Value*& value, ResultKind) {
      Value* result = program.add_value(value->type(), value->name());
      result->set_producer(copy.get());
      map[value] = result;
      value = result;
    });
    for_each_region(*copy, [&](std::string_view, NestedRegion& region) {
      const NestedRegion original = region;
      region.renew();
      clone_region(*original, *region, program, map);
    });
    target.push_back(std::move(copy));
  }
}

}  // namespace

std::string Program::unique_name(const std::string& hint) {
  std::string name = hint;
  while (name.empty() || names_.contains(name)) {
    name = concat(hint, hint.empty() ? "" : "_", next_number_++);
  }
  names_.insert(name);
  return name;
}

Value* Program::add_value(Type type, const std::string& hint) {
  values_.push_back(std::make_unique<Value>(std::move(type), unique_name(hint)));
  return values_.back().get();
}

Value* Program::add_input(Type type, const std::string& name) {
  HOSTJIT_CHECK(!names_.contains(name), "program '", name_, "': input %", name,
                " is defined twice");
  inputs_.push_back(add_value(std::move(type), name));
  return inputs_.back();
}

void Program::add_kernel(Kernel kernel) {
  const auto [position, inserted] = kernels_.try_emplace(kernel.name, kernel);
  HOSTJIT_CHECK(inserted || position->second == kernel, "program '", name_, "': kernel @",
                kernel.name, " is defined twice with different text");
}

void Program::replace_uses(const std::unordered_map<Value*, Value*>& replacement) {
  const auto rewrite = [&](Value*& value) {
    for (auto found = replacement.find(value); found != replacement.end();
         found = replacement.find(value)) {
      value = found->second;
    }
  };
  for (Region* region : {&init_, &body_}) {
    for_each_op(*region, [&](Op& op) {
      for_each_operand(op, [&](Value*& value, Access) { rewrite(value); });
    });
  }
  for (Value*& output : outputs_) rewrite(output);
}

bool Program::is_symbolic() const {
  const auto has_symbol = [](const Value* value) {
    return value->is_tensor() && !value->tensor_type().is_static();
  };
  if (std::ranges::any_of(inputs_, has_symbol)) return true;
  bool found = false;
  for (const Region* region : {&init_, &body_}) {
    for_each_op(*region, [&](const Op& op) {
      for_each_result(op, [&](const Value* value, ResultKind) { found |= has_symbol(value); });
      for_each_dim(op, [&](const Dim& dim) { found |= !dim.is_constant(); });
    });
  }
  return found;
}

std::optional<Device> Program::cuda_device() const {
  std::optional<Device> found;
  const auto look_at = [&](const Value* value) {
    if (found || !value->is_tensor()) return;
    const Device device = value->tensor_type().device;
    if (device.type == DeviceType::kCUDA) found = device;
  };
  for (const Value* input : inputs_) look_at(input);
  for (const Region* region : {&init_, &body_}) {
    for_each_op(*region, [&](const Op& op) {
      for_each_result(op, [&](const Value* value, ResultKind) { look_at(value); });
    });
  }
  return found;
}

Program Program::clone(bool with_kernels) const {
  Program copy(name_);
  ValueMap map;
  for (const Value* input : inputs_) map[input] = copy.add_input(input->type(), input->name());
  clone_region(init_, copy.init_, copy, map);
  clone_region(body_, copy.body_, copy, map);
  for (const Value* output : outputs_) copy.outputs_.push_back(map.at(output));
  if (with_kernels) copy.kernels_ = kernels_;
  copy.arena_ = arena_;
  copy.device_arena_ = device_arena_;
  return copy;
}

}  // namespace hostjit
