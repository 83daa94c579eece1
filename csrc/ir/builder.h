// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "ir/program.h"
#include "ir/visitor.h"

namespace hostjit {

// Appends verified ops to a region of a program.
//
//   Value* h = builder.allocate(TensorType::make(DType::kF32, {1, 64}));
//   builder.create(Linear{.input = x, .weight = w, .bias = b, .out = h});
class Builder {
 public:
  explicit Builder(Program& program) : Builder(program, program.body()) {}
  Builder(Program& program, Region& region) : program_(program), region_(region) {}

  // "file:line" of the ops that follow.
  void set_location(std::string location) { location_ = std::move(location); }

  Program& program() { return program_; }

  // Verifies `payload`, whose results were made by Program::add_value, and appends it.
  Op& create(OpVariant payload);

  Value* allocate(TensorType type, const std::string& name = "");
  // `offset` in elements of the source.
  Value* view(Value* source, TensorType type, Dim offset = {}, const std::string& name = "");
  Value* index_constant(int64_t value);
  Value* index_binary(IndexOperation operation, Value* lhs, Value* rhs);
  Value* size(Value* source, int64_t dim);

 private:
  Program& program_;
  Region& region_;
  std::string location_;
};

}  // namespace hostjit
