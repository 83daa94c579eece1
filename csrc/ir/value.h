// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ir/type.h"
#include "support/check.h"

namespace hostjit {

struct Op;

// An SSA value: an input of the program or a result of one op. Owned by its Program.
class Value {
 public:
  Value(Type type, std::string name) : type_(std::move(type)), name_(std::move(name)) {}

  const Type& type() const { return type_; }
  // Other numbers in place of sizes, strides and symbols: the rank and the dtype stay.
  Type& mutable_type() { return type_; }
  const std::string& name() const { return name_; }

  // The op whose result this is; null for an input.
  Op* producer() const { return producer_; }
  void set_producer(Op* op) { producer_ = op; }

  bool is_tensor() const { return std::holds_alternative<TensorType>(type_); }

  // The tensor type; throws Error naming the value when it is no tensor.
  const TensorType& tensor_type() const {
    const auto* type = std::get_if<TensorType>(&type_);
    HOSTJIT_CHECK(type != nullptr, "%", name_, " has type ", to_string(type_),
                  ", expected a tensor");
    return *type;
  }

 private:
  Type type_;
  std::string name_;
  Op* producer_ = nullptr;
};

}  // namespace hostjit
