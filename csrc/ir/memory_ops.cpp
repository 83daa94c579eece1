// SPDX-License-Identifier: Apache-2.0
#include "ir/memory_ops.h"

#include <limits>

namespace hostjit {
namespace {

// Smallest and largest value of an integer dtype, as far as a literal can say it.
std::pair<int64_t, int64_t> integer_range(DType dtype) {
  const bool is_unsigned =
      dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kU32 || dtype == DType::kU64;
  const auto bits = static_cast<uint64_t>(8 * size_in_bytes(dtype) - (is_unsigned ? 0 : 1));
  const int64_t most = bits < 63 ? static_cast<int64_t>((uint64_t{1} << bits) - 1)
                                 : std::numeric_limits<int64_t>::max();
  return {is_unsigned ? 0 : -most - 1, most};
}

// What an element of `dtype` may be, or empty when `literal` is one without a lossy change of kind.
std::string expected_element(const Literal& literal, DType dtype) {
  const auto* integer = std::get_if<int64_t>(&literal.value);
  const bool is_real = integer || std::holds_alternative<double>(literal.value);
  if (dtype == DType::kBool) {
    return std::holds_alternative<bool>(literal.value) ? "" : "true or false for dtype bool";
  }
  if (is_floating_point(dtype)) {
    return is_real ? "" : concat("a real number for dtype ", dtype);
  }
  if (is_complex(dtype)) {
    const bool fits = is_real || std::holds_alternative<std::complex<double>>(literal.value);
    return fits ? "" : concat("a number for dtype ", dtype);
  }
  const auto [least, most] = integer_range(dtype);
  if (integer && *integer >= least && *integer <= most) return "";
  return concat("an integer from ", least, " to ", most, " for dtype ", dtype);
}

// The type of the number that an element of `dtype` is, empty where no type holds all of them.
std::string_view number_type(DType dtype) {
  if (is_complex(dtype) || dtype == DType::kU64 || dtype >= DType::kF8E4M3FN) return "";
  return is_floating_point(dtype) ? "f64" : "index";
}

}  // namespace

void Allocate::verify(const OpVerifier& verifier) const {
  if (offset < -1) {
    verifier.fail("offset", concat("is ", offset), "-1 or a number of bytes into the arena");
  }
  verifier.require_no_internal_overlap("result", result);
}

void Deallocate::verify(const OpVerifier& verifier) const {
  verifier.require_tensor("buffer", buffer);
}

void Copy::verify(const OpVerifier& verifier) const {
  verifier.require_broadcasts_to("source", source, verifier.require_tensor("out", out).dims);
  verifier.require_no_internal_overlap("out", out);
}

void Fill::verify(const OpVerifier& verifier) const {
  const std::string expected = expected_element(value, verifier.require_tensor("out", out).dtype);
  if (!expected.empty()) verifier.fail("value", concat("is ", to_string(value)), expected);
  verifier.require_device("out", out, Device{});
  verifier.require_no_internal_overlap("out", out);
}

void Constant::verify(const OpVerifier& verifier) const {
  const TensorType& type = verifier.require_tensor("result", result);
  verifier.require_device("result", result, Device{});
  if (!type.is_static() || !type.is_contiguous()) {
    verifier.fail("result", concat("has type ", to_string(result->type())),
                  "a static contiguous type");
  }
  if (static_cast<int64_t>(values.size()) != type.num_elements()) {
    verifier.fail("values", concat("has length ", values.size()),
                  concat(type.num_elements(), ", one per element of ", to_string(type.dims)));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string expected = expected_element(values[i], type.dtype);
    if (expected.empty()) continue;
    verifier.fail({"values", i}, concat("is ", to_string(values[i])), expected);
  }
}

void Item::verify(const OpVerifier& verifier) const {
  verifier.require_rank("source", source, 0);
  verifier.require_device("source", source, Device{});
  const DType dtype = source->tensor_type().dtype;
  const std::string_view type = number_type(dtype);
  if (type.empty()) {
    verifier.fail("source", concat("has dtype ", dtype), "one whose values are f64 or index");
  }
  verifier.require_scalar("result", result, {type});
}

}  // namespace hostjit
