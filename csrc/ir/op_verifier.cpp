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
  if (!type.is_static() || type.num_elements() < 2) return false;
  const std::vector<int64_t> sizes = type.sizes();
  const std::vector<int64_t> strides = type.static_strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && strides[i] == 0) return true;
  }
  return type.num_elements() > type.extent_in_bytes() / size_in_bytes(type.dtype);
}

}  // namespace

void OpVerifier::fail(std::string_view operand, const std::string& found,
                      const std::string& expected) const {
  throw_error(concat(op_name_, label_, ": '", operand, "' ", found, ", expected ", expected));
}

const TensorType& OpVerifier::require_tensor(std::string_view operand, const Value* value) const {
  const auto* type = std::get_if<TensorType>(&value->type());
  if (type) return *type;
  fail(operand, concat("has type ", to_string(value->type())), "a tensor");
}

void OpVerifier::require_scalar(std::string_view operand, const Value* value,
                                std::initializer_list<std::string_view> types) const {
  const std::string found = to_string(value->type());
  if (std::ranges::find(types, found) != types.end()) return;
  std::string expected;
  for (const std::string_view type : types) {
    expected += concat(expected.empty() ? "" : " or ", type);
  }
  fail(operand, concat("has type ", found), expected);
}

void OpVerifier::require_rank(std::string_view operand, const Value* value, int64_t rank) const {
  const int64_t found = require_tensor(operand, value).rank();
  if (found != rank) fail(operand, concat("has rank ", found), std::to_string(rank));
}

void OpVerifier::require_dtype(std::string_view operand, const Value* value, DType dtype) const {
  const DType found = require_tensor(operand, value).dtype;
  if (found != dtype) {
    fail(operand, concat("has dtype ", found), std::string(to_string(dtype)));
  }
}

void OpVerifier::require_device(std::string_view operand, const Value* value, Device device) const {
  const Device found = require_tensor(operand, value).device;
  if (found != device) fail(operand, concat("is on ", to_string(found)), to_string(device));
}

void OpVerifier::require_sizes(std::string_view operand, const Value* value,
                               const std::vector<Dim>& sizes) const {
  const std::vector<Dim>& found = require_tensor(operand, value).dims;
  if (std::ranges::equal(found, sizes, may_be_equal)) return;
  fail(operand, concat("has sizes ", to_string(found)), to_string(sizes));
}

void OpVerifier::require_broadcasts_to(std::string_view operand, const Value* value,
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

void OpVerifier::require_no_internal_overlap(std::string_view operand, const Value* value) const {
  const TensorType& type = require_tensor(operand, value);
  if (!certainly_overlaps(type)) return;
  fail(operand,
       concat("has sizes ", to_string(type.dims), " with strides ", to_string(type.strides)),
       "elements that do not share memory");
}

}  // namespace hostjit
