// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "ir/value.h"

namespace hostjit {

// Helps an op's verify() to report "<op>: <operand>: expected ..., found ...".
class OpVerifier {
 public:
  OpVerifier(std::string_view op_name, std::string label)
      : op_name_(op_name), label_(std::move(label)) {}

  // Throws Error "<op><label>: operand '<operand>' <has>, expected <expected>" unless `condition`.
  void require(bool condition, std::string_view operand, const std::string& has,
               const std::string& expected) const {
    HOSTJIT_CHECK(condition, op_name_, label_, ": '", operand, "' ", has, ", expected ", expected);
  }

  void require_rank(std::string_view operand, const Value* value, int64_t rank) const;
  void require_dtype(std::string_view operand, const Value* value, DType dtype) const;
  void require_device(std::string_view operand, const Value* value, Device device) const;
  void require_sizes(std::string_view operand, const Value* value,
                     const std::vector<Dim>& sizes) const;
  // Elements of a written tensor must not share memory.
  void require_no_internal_overlap(std::string_view operand, const Value* value) const;

 private:
  std::string_view op_name_;
  std::string label_;  // e.g. " 'k0'" for a kernel
};

}  // namespace hostjit
