// SPDX-License-Identifier: Apache-2.0
#include "ir/op_verifier.h"

#include <algorithm>

namespace hostjit {
namespace {

// What two symbols are is seen when a row is made, which verifies again.
bool may_be_equal(const Dim& a, const Dim& b) {
  return a == b || !a.is_constant() || !b.is_constant();
}

bool certainly_overlaps(const TensorType& type) {
  if (!type.is_static()) return false;
  int64_t num_elements = 1;
  int64_t num_places = 1;
  bool repeats = false;
  for (size_t i = 0; i < type.dims.size(); ++i) {
    const int64_t size = type.dims[i].value;
    const int64_t stride = type.strides[i].value;
    if (size == 0) return false;
    num_elements *= size;
    num_places += (size - 1) * stride;
    repeats |= size > 1 && stride == 0;
  }
  return repeats || num_elements > num_places;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const OperandName& name) {
  out << name.name_;
  if (name.index_) out << '[' << *name.index_ << ']';
  return out;
}

void OpVerifier::fail(OperandName operand, const std::string& found,
                      const std::string& expected) const {
  throw_error(concat(op_name_, label_, ": '", operand, "' ", found, ", expected ", expected));
}

const TensorType& OpVerifier::require_tensor(OperandName operand, const Value* value) const {
  const auto* type = std::get_if<TensorType>(&value->type());
  if (type) return *type;
  fail(operand, concat("has type ", to_string(value->type())), "a tensor");
}

void OpVerifier::require_scalar(OperandName operand, const Value* value,
                                std::initializer_list<std::string_view> types) const {
  const std::string found = to_string(value->type());
  if (std::ranges::find(types, found) != types.end()) return;
  std::string expected;
  for (const std::string_view type : types) {
    expected += concat(expected.empty() ? "" : " or ", type);
  }
  fail(operand, concat("has type ", found), expected);
}

void OpVerifier::require_rank(OperandName operand, const Value* value, int64_t rank) const {
  const int64_t found = require_tensor(operand, value).rank();
  if (found != rank) fail(operand, concat("has rank ", found), std::to_string(rank));
}

void OpVerifier::require_dtype(OperandName operand, const Value* value, DType dtype) const {
  const DType found = require_tensor(operand, value).dtype;
  if (found != dtype) {
    fail(operand, concat("has dtype ", found), std::string(to_string(dtype)));
  }
}

void OpVerifier::require_device(OperandName operand, const Value* value, Device device) const {
  const Device found = require_tensor(operand, value).device;
  if (found != device) fail(operand, concat("is on ", to_string(found)), to_string(device));
}

void OpVerifier::require_sizes(OperandName operand, const Value* value,
                               const std::vector<Dim>& sizes) const {
  const std::vector<Dim>& found = require_tensor(operand, value).dims;
  if (std::ranges::equal(found, sizes, may_be_equal)) return;
  fail(operand, concat("has sizes ", to_string(found)), to_string(sizes));
}

void OpVerifier::require_broadcasts_to(OperandName operand, const Value* value,
                                       const std::vector<Dim>& sizes) const {
  const std::vector<Dim>& found = require_tensor(operand, value).dims;
  bool fits = found.size() <= sizes.size();
  for (size_t i = 0; fits && i < found.size(); ++i) {
    const Dim& size = found[found.size() - 1 - i];
    fits = size == Dim(1) || may_be_equal(size, sizes[sizes.size() - 1 - i]);
  }
  if (fits) return;
  fail(operand, concat("has sizes ", to_string(found)),
       concat("sizes that broadcast to ", to_string(sizes)));
}

void OpVerifier::require_no_internal_overlap(OperandName operand, const Value* value) const {
  const TensorType& type = require_tensor(operand, value);
  if (!certainly_overlaps(type)) return;
  fail(operand,
       concat("has sizes ", to_string(type.dims), " with strides ", to_string(type.strides)),
       "elements that do not share memory");
}

}  // namespace hostjit
