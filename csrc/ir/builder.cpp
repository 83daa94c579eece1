// SPDX-License-Identifier: Apache-2.0
#include "ir/builder.h"

#include "ir/verifier.h"

namespace hostjit {

Op& Builder::create(OpVariant payload) {
  auto op = std::make_unique<Op>(Op{std::move(payload), location_});
  verify_op(*op);
  for_each_result(*op, [&](Value* value, ResultKind) { value->set_producer(op.get()); });
  region_.push_back(std::move(op));
  return *region_.back();
}

Value* Builder::allocate(TensorType type, const std::string& name) {
  Value* result = program_.add_value(std::move(type), name);
  create(Allocate{.result = result});
  return result;
}

Value* Builder::view(Value* source, TensorType type, Dim offset, const std::string& name) {
  Value* result = program_.add_value(std::move(type), name);
  create(View{.source = source, .offset = std::move(offset), .result = result});
  return result;
}

Value* Builder::index_constant(int64_t value) {
  Value* result = program_.add_value(IndexType{});
  create(IndexConstant{.value = value, .result = result});
  return result;
}

Value* Builder::index_binary(IndexOperation operation, Value* lhs, Value* rhs) {
  Value* result = program_.add_value(IndexType{});
  create(IndexBinary{.operation = operation, .lhs = lhs, .rhs = rhs, .result = result});
  return result;
}

Value* Builder::size(Value* source, int64_t dim) {
  Value* result = program_.add_value(IndexType{});
  create(Size{.source = source, .dim = dim, .result = result});
  return result;
}

}  // namespace hostjit
