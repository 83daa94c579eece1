// SPDX-License-Identifier: Apache-2.0
#include "ir/type.h"

#include <algorithm>
#include <limits>

#include "support/check.h"
#include "support/literal.h"

namespace hostjit {
namespace {

// What a lexer reads as one word.
bool is_word(const std::string& text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto goes_on = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  const bool is_number = text == "inf" || text == "nan";
  return !text.empty() && is_letter(text[0]) && std::ranges::all_of(text, goes_on) && !is_number;
}

// The strides that rows in memory have; as far as constants tell: those of sizes [n, 4, 8].
bool are_contiguous(const std::vector<Dim>& dims, const std::vector<Dim>& strides) {
  int64_t expected = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (strides[i] != Dim(expected)) return false;
    if (i == 0) return true;
    if (!dims[i].is_constant()) return false;
    expected *= std::max<int64_t>(dims[i].value, 1);
  }
  return true;
}

bool all_constant(const std::vector<Dim>& dims) {
  return std::ranges::all_of(dims, &Dim::is_constant);
}

std::vector<int64_t> constants(const std::vector<Dim>& dims) {
  std::vector<int64_t> values;
  values.reserve(dims.size());
  for (const Dim& dim : dims) {
    HOSTJIT_ICHECK(dim.is_constant(), "dim '", dim.symbol, "' is symbolic");
    values.push_back(dim.value);
  }
  return values;
}

template <class T>
std::string list_to_string(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    text += i ? ", " : "";
    if constexpr (std::is_same_v<T, Dim>) {
      text += to_string(values[i]);
    } else {
      text += std::to_string(values[i]);
    }
  }
  return text + "]";
}

}  // namespace

Dim Dim::make_symbol(std::string name) {
  Dim dim;
  dim.symbol = std::move(name);
  return dim;
}

std::string to_string(const Dim& dim) {
  if (dim.is_constant()) return std::to_string(dim.value);
  return is_word(dim.symbol) ? dim.symbol : quoted(dim.symbol);
}

std::string to_string(const std::vector<Dim>& dims) { return list_to_string(dims); }
std::string to_string(const std::vector<int64_t>& values) { return list_to_string(values); }

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(sizes[i], 1), &stride)) {
      stride = std::numeric_limits<int64_t>::max();
    }
  }
  return strides;
}

TensorType TensorType::make(DType dtype, std::vector<Dim> dims,
                            std::optional<std::vector<Dim>> strides, Device device) {
  TensorType type{dtype, std::move(dims), {}, device};
  if (strides) {
    type.strides = std::move(*strides);
  } else if (all_constant(type.dims)) {
    const std::vector<int64_t> computed = contiguous_strides(constants(type.dims));
    type.strides.assign(computed.begin(), computed.end());
  }
  type.check();
  if (!type.is_static() && !type.strides.empty() && are_contiguous(type.dims, type.strides)) {
    type.strides.clear();
  }
  return type;
}

void TensorType::check() const {
  for (const Dim& dim : dims) {
    HOSTJIT_CHECK(dim.value >= 0, "tensor type: size ", dim.value, " is negative");
  }
  if (strides.empty() && !all_constant(dims)) return;
  HOSTJIT_CHECK(strides.size() == dims.size(), "tensor type: ", strides.size(), " strides for ",
                dims.size(), " dims");
  int64_t elements = 1;
  int64_t last = 0;
  bool overflow = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    HOSTJIT_CHECK(strides[i].value >= 0, "tensor type: stride ", strides[i].value, " is negative");
    const int64_t size = std::max<int64_t>(dims[i].value, 1);
    int64_t step = 0;
    overflow |= __builtin_mul_overflow(elements, size, &elements);
    overflow |= __builtin_mul_overflow(size - 1, strides[i].value, &step);
    overflow |= __builtin_add_overflow(last, step, &last);
  }
  // Room for a size of 16 bytes per element and for rounding up to an alignment.
  constexpr int64_t kMostElements = std::numeric_limits<int64_t>::max() / 32;
  HOSTJIT_CHECK(!overflow && elements <= kMostElements && last < kMostElements,
                "tensor type: sizes ", to_string(dims), " with strides ", to_string(strides),
                " are too large");
}

bool TensorType::is_static() const {
  return all_constant(dims) && all_constant(strides) && strides.size() == dims.size();
}

bool TensorType::is_contiguous() const {
  if (!is_static()) return strides.empty();
  int64_t expected = 1;
  if (num_elements() == 0) return true;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i].value == 1) continue;
    if (strides[i].value != expected) return false;
    expected *= dims[i].value;
  }
  return true;
}

std::vector<int64_t> TensorType::sizes() const { return constants(dims); }

std::vector<int64_t> TensorType::static_strides() const {
  HOSTJIT_ICHECK(is_static(), "tensor type ", to_string(Type(*this)), " is not static");
  return constants(strides);
}

int64_t TensorType::num_elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes()) count *= size;
  return count;
}

int64_t TensorType::extent_in_bytes() const {
  if (num_elements() == 0) return 0;
  const std::vector<int64_t> steps = static_strides();
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i].value - 1) * steps[i];
  return (last + 1) * size_in_bytes(dtype);
}

std::string to_string(const Type& type) {
  struct Text {
    std::string operator()(const TensorType& tensor) const {
      std::string text = concat("tensor<", tensor.dtype, ", ", to_string(tensor.dims));
      const bool default_strides =
          tensor.strides.empty() ||
          (tensor.is_static() && tensor.static_strides() == contiguous_strides(tensor.sizes()));
      if (!default_strides) text += ", strides=" + to_string(tensor.strides);
      return text + ", " + to_string(tensor.device) + ">";
    }
    std::string operator()(const IndexType&) const { return "index"; }
    std::string operator()(const F64Type&) const { return "f64"; }
    std::string operator()(const BoolType&) const { return "bool"; }
    std::string operator()(const StreamType&) const { return "stream"; }
    std::string operator()(const EventType&) const { return "event"; }
  };
  return std::visit(Text{}, type);
}

}  // namespace hostjit
