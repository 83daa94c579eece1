// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "ir/value.h"

namespace hostjit {

// What an error calls an operand: "bias", or "inputs[2]", which is put together when it is
// reported. Refers to the text it is made of.
class OperandName {
 public:
  template <class Text>
    requires std::convertible_to<const Text&, std::string_view>
  OperandName(const Text& name) : name_(name) {}  // NOLINT(google-explicit-constructor)
  OperandName(std::string_view list, size_t index) : name_(list), index_(index) {}

  friend std::ostream& operator<<(std::ostream& out, const OperandName& name);

 private:
  std::string_view name_;
  std::optional<size_t> index_;
};

// Helps an op's verify() to report "<op>: '<operand>' <found>, expected <expected>".
class OpVerifier {
 public:
  OpVerifier(std::string_view op_name, std::string label)
      : op_name_(op_name), label_(std::move(label)) {}

  // Throws Error "<op><label>: '<operand>' <found>, expected <expected>".
  [[noreturn]] void fail(OperandName operand, const std::string& found,
                         const std::string& expected) const;
  // Fails unless `condition`. Texts are literals: those that have to be built, which takes longer
  // than the test, are for fail.
  void require(bool condition, OperandName operand, const char* found, const char* expected) const {
    if (!condition) fail(operand, found, expected);
  }

  // The type of a tensor operand.
  const TensorType& require_tensor(OperandName operand, const Value* value) const;
  // `types` are the types that are allowed, as text: "index", "f64".
  void require_scalar(OperandName operand, const Value* value,
                      std::initializer_list<std::string_view> types) const;
  void require_rank(OperandName operand, const Value* value, int64_t rank) const;
  void require_dtype(OperandName operand, const Value* value, DType dtype) const;
  void require_device(OperandName operand, const Value* value, Device device) const;
  // A symbol may be any size here.
  void require_sizes(OperandName operand, const Value* value, const std::vector<Dim>& sizes) const;
  void require_broadcasts_to(OperandName operand, const Value* value,
                             const std::vector<Dim>& sizes) const;
  // Elements of a written tensor must not share memory. Like eager, sees what is certain: an
  // expanded dim, or more elements than the extent has places.
  void require_no_internal_overlap(OperandName operand, const Value* value) const;

 private:
  std::string_view op_name_;
  std::string label_;  // what tells the op from its like: " 'k0' (model.py:12)", or empty
};

}  // namespace hostjit
