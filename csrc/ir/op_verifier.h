// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ir/value.h"

namespace hostjit {

// Helps an op's verify() to report "<op>: '<operand>' <found>, expected <expected>".
class OpVerifier {
 public:
  OpVerifier(std::string_view op_name, std::string label)
      : op_name_(op_name), label_(std::move(label)) {}

  // Throws Error "<op><label>: '<operand>' <found>, expected <expected>".
  [[noreturn]] void fail(std::string_view operand, const std::string& found,
                         const std::string& expected) const;
  // Fails unless `condition`. Where the texts take time to build, test first and call fail.
  void require(bool condition, std::string_view operand, const std::string& found,
               const std::string& expected) const {
    if (!condition) fail(operand, found, expected);
  }

  // The type of a tensor operand.
  const TensorType& require_tensor(std::string_view operand, const Value* value) const;
  // `types` are the types that are allowed, as text: "index", "f64".
  void require_scalar(std::string_view operand, const Value* value,
                      std::initializer_list<std::string_view> types) const;
  void require_rank(std::string_view operand, const Value* value, int64_t rank) const;
  void require_dtype(std::string_view operand, const Value* value, DType dtype) const;
  void require_device(std::string_view operand, const Value* value, Device device) const;
  // A symbol may be any size here.
  void require_sizes(std::string_view operand, const Value* value,
                     const std::vector<Dim>& sizes) const;
  void require_broadcasts_to(std::string_view operand, const Value* value,
                             const std::vector<Dim>& sizes) const;
  // Elements of a written tensor must not share memory. Like eager, sees what is certain: an
  // expanded dim, or more elements than the extent has places.
  void require_no_internal_overlap(std::string_view operand, const Value* value) const;

 private:
  std::string_view op_name_;
  std::string label_;  // what tells the op from its like: " 'k0' (model.py:12)", or empty
};

}  // namespace hostjit
