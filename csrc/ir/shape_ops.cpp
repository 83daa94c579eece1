// SPDX-License-Identifier: Apache-2.0
#include "ir/shape_ops.h"

#include <algorithm>
#include <array>
#include <span>

namespace hostjit {
namespace {

constexpr auto kIndexOperationNames = std::to_array<std::string_view>({
#define HOSTJIT_INDEX_NAME(enumerator, text) text,
    HOSTJIT_FOR_EACH_INDEX_OPERATION(HOSTJIT_INDEX_NAME)
#undef HOSTJIT_INDEX_NAME
});

// Wraps around on overflow, as generated code does.
int64_t wrap(uint64_t value) { return static_cast<int64_t>(value); }

int64_t floor_divide(int64_t lhs, int64_t rhs) {
  if (rhs == -1) return wrap(0 - static_cast<uint64_t>(lhs));
  const int64_t quotient = lhs / rhs;
  return quotient - (lhs % rhs != 0 && (lhs < 0) != (rhs < 0));
}

int64_t ceil_divide(int64_t lhs, int64_t rhs) {
  if (rhs == -1) return wrap(0 - static_cast<uint64_t>(lhs));
  const int64_t quotient = lhs / rhs;
  return quotient + (lhs % rhs != 0 && (lhs < 0) == (rhs < 0));
}

}  // namespace

std::string_view to_string(IndexOperation operation) {
  return kIndexOperationNames[static_cast<size_t>(operation)];
}

IndexOperation index_operation_from_string(std::string_view text) {
  std::string valid;
  for (size_t i = 0; i < kIndexOperationNames.size(); ++i) {
    if (kIndexOperationNames[i] == text) return static_cast<IndexOperation>(i);
    valid += concat(i ? ", " : "", kIndexOperationNames[i]);
  }
  throw_error(concat("unknown index operation '", text, "', expected one of: ", valid));
}

int64_t apply(IndexOperation operation, int64_t lhs, int64_t rhs) {
  const auto a = static_cast<uint64_t>(lhs);
  const auto b = static_cast<uint64_t>(rhs);
  const auto check_divisor = [&] {
    HOSTJIT_CHECK(rhs != 0, "index_binary: ", to_string(operation), " by zero");
  };
  switch (operation) {
    case IndexOperation::kAdd: return wrap(a + b);
    case IndexOperation::kSub: return wrap(a - b);
    case IndexOperation::kMul: return wrap(a * b);
    case IndexOperation::kFloorDiv: check_divisor(); return floor_divide(lhs, rhs);
    case IndexOperation::kCeilDiv: check_divisor(); return ceil_divide(lhs, rhs);
    case IndexOperation::kMod:
      check_divisor();
      return wrap(a - b * static_cast<uint64_t>(floor_divide(lhs, rhs)));
    case IndexOperation::kMin: return lhs < rhs ? lhs : rhs;
    case IndexOperation::kMax: return lhs < rhs ? rhs : lhs;
  }
  throw_internal_error(__FILE__, __LINE__, "index operation out of range");
}

void View::verify(const OpVerifier& verifier) const {
  const TensorType& from = verifier.require_tensor("source", source);
  const TensorType& to = verifier.require_tensor("result", result);
  if (to.dtype != real_dtype(from.dtype) && from.dtype != real_dtype(to.dtype)) {
    verifier.require_dtype("result", result, from.dtype);
  }
  verifier.require_device("result", result, from.device);
  if (offset.value < 0) {
    verifier.fail("offset", concat("is ", offset.value), "0 or more elements");
  }
  if (!from.is_static() || !to.is_static() || !offset.is_constant()) return;
  if (to.num_elements() == 0) return;
  const int64_t bytes = size_in_bytes(to.dtype);
  const int64_t have = from.extent_in_bytes() / bytes;
  const int64_t need = to.extent_in_bytes() / bytes;
  if (need <= have && offset.value <= have - need) return;
  verifier.fail("result", concat("covers ", need, " elements of memory from offset ", offset.value),
                concat("to stay within the ", have, " of 'source'"));
}

void Select::verify(const OpVerifier& verifier) const {
  const TensorType& from = verifier.require_tensor("source", source);
  const TensorType& to = verifier.require_tensor("result", result);
  verifier.require_scalar("index", index, {"index"});
  if (from.rank() == 0) verifier.fail("source", "has rank 0", "1 or more");
  verifier.require_dtype("result", result, from.dtype);
  verifier.require_device("result", result, from.device);
  verifier.require_sizes("result", result, {from.dims.begin() + 1, from.dims.end()});
  if (!from.is_static() || !to.is_static()) return;
  if (std::ranges::equal(to.strides, std::span(from.strides).subspan(1))) return;
  verifier.fail("result", concat("has strides ", to_string(to.strides)),
                concat("those of 'source' behind the first, which has ", to_string(from.strides)));
}

void Size::verify(const OpVerifier& verifier) const {
  const TensorType& type = verifier.require_tensor("source", source);
  if (dim < 0 || dim >= type.rank()) {
    verifier.fail("dim", concat("is ", dim),
                  concat("a dim of 'source', which has rank ", type.rank()));
  }
  verifier.require_scalar("result", result, {"index"});
}

void IndexConstant::verify(const OpVerifier& verifier) const {
  verifier.require_scalar("result", result, {"index"});
}

void FloatConstant::verify(const OpVerifier& verifier) const {
  verifier.require_scalar("result", result, {"f64"});
}

void IndexBinary::verify(const OpVerifier& verifier) const {
  verifier.require_scalar("lhs", lhs, {"index"});
  verifier.require_scalar("rhs", rhs, {"index"});
  verifier.require_scalar("result", result, {"index"});
}

}  // namespace hostjit
