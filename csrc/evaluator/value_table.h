// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <variant>
#include <vector>

#include "ir/program.h"

namespace hostjit {

// What a value is during one call. Booleans are the integers 0 and 1.
using RuntimeValue = std::variant<std::monostate, at::Tensor, int64_t, double>;

// Consecutive numbers for the values of a program, inputs first.
class ValueNumbering {
 public:
  void add(const Value* value) { numbers_.try_emplace(value, numbers_.size()); }
  size_t of(const Value* value) const { return numbers_.at(value); }
  size_t size() const { return numbers_.size(); }

 private:
  std::unordered_map<const Value*, size_t> numbers_;
};

// The values that are defined at a point of one call.
class ValueTable {
 public:
  explicit ValueTable(const ValueNumbering& numbering)
      : numbering_(&numbering), values_(numbering.size()) {}

  void set(const Value* value, RuntimeValue content) {
    values_[numbering_->of(value)] = std::move(content);
  }
  void drop(const Value* value) { set(value, std::monostate()); }
  // Of an input: its position.
  int64_t number(const Value* value) const { return static_cast<int64_t>(numbering_->of(value)); }

  // The verifier promises that it is defined here.
  RuntimeValue& get(const Value* value) {
    RuntimeValue& content = values_[numbering_->of(value)];
    HOSTJIT_ICHECK(content.index() != 0, "%", value->name(), " is not defined");
    return content;
  }
  at::Tensor& tensor(const Value* value) { return std::get<at::Tensor>(get(value)); }
  int64_t& index(const Value* value) { return std::get<int64_t>(get(value)); }

  // The address of the tensor, integer or double.
  void* address(const Value* value) {
    RuntimeValue& content = get(value);
    if (auto* tensor = std::get_if<at::Tensor>(&content)) return tensor;
    if (auto* number = std::get_if<double>(&content)) return number;
    return &std::get<int64_t>(content);
  }

 private:
  const ValueNumbering* numbering_;
  std::vector<RuntimeValue> values_;
};

}  // namespace hostjit
