// SPDX-License-Identifier: Apache-2.0
#include "runtime/literal_to_ivalue.h"

#include <ATen/ScalarOps.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>

#include <array>
#include <utility>

#include "runtime/torch_types.h"

namespace hostjit {
namespace {

using c10::IValue;
using c10::TypeKind;

constexpr auto kLayouts = std::to_array<std::pair<const char*, c10::Layout>>({
    {"strided", c10::Layout::Strided},
    {"sparse_coo", c10::Layout::Sparse},
    {"sparse_csr", c10::Layout::SparseCsr},
    {"sparse_csc", c10::Layout::SparseCsc},
    {"sparse_bsr", c10::Layout::SparseBsr},
    {"sparse_bsc", c10::Layout::SparseBsc},
    {"_mkldnn", c10::Layout::Mkldnn},
    {"jagged", c10::Layout::Jagged},
});

constexpr auto kMemoryFormats = std::to_array<std::pair<const char*, c10::MemoryFormat>>({
    {"contiguous_format", c10::MemoryFormat::Contiguous},
    {"preserve_format", c10::MemoryFormat::Preserve},
    {"channels_last", c10::MemoryFormat::ChannelsLast},
    {"channels_last_3d", c10::MemoryFormat::ChannelsLast3d},
});

// The enumerator of literal `kind(word)`; throws LiteralMismatch for another literal or word.
template <class Table>
IValue symbol_value(const Literal& literal, const char* kind, const Table& table) {
  const auto* symbol = std::get_if<Literal::Symbol>(&literal.value);
  if (symbol != nullptr && symbol->kind == kind) {
    for (const auto& [word, value] : table) {
      if (symbol->word == word) return value;
    }
  }
  throw LiteralMismatch();
}

const std::string& word_of(const Literal& literal, const char* kind) {
  const auto* symbol = std::get_if<Literal::Symbol>(&literal.value);
  if (symbol == nullptr || symbol->kind != kind) throw LiteralMismatch();
  return symbol->word;
}

at::Scalar number(const Literal& literal) {
  if (const auto* value = std::get_if<bool>(&literal.value)) return *value;
  if (const auto* value = std::get_if<int64_t>(&literal.value)) return *value;
  if (const auto* value = std::get_if<double>(&literal.value)) return *value;
  if (const auto* value = std::get_if<std::complex<double>>(&literal.value)) {
    return c10::complex<double>(*value);
  }
  throw LiteralMismatch();
}

// A Python number where the schema wants a tensor takes part in type promotion as a number.
at::Tensor number_tensor(const at::Scalar& value) {
  const c10::InferenceMode normal_tensors(/*enabled=*/false);
  at::Tensor tensor = c10::scalar_to_tensor(value);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

IValue list_value(const Literal& literal, const c10::ListType& type,
                  std::optional<int32_t> list_size) {
  const c10::TypePtr& element = type.getElementType();
  auto list = make_list(element);
  if (const auto* values = std::get_if<Literal::List>(&literal.value)) {
    for (const Literal& value : *values) list.push_back(to_ivalue(value, *element));
  } else {
    if (!list_size) throw LiteralMismatch();
    for (int32_t i = 0; i < *list_size; ++i) list.push_back(to_ivalue(literal, *element));
  }
  return list;
}

}  // namespace

const c10::Type& without_optional(const c10::Type& type) {
  const c10::Type* inner = &type;
  while (inner->kind() == TypeKind::OptionalType) {
    inner = inner->expectRef<c10::OptionalType>().getElementType().get();
  }
  return *inner;
}

c10::impl::GenericList make_list(const c10::TypePtr& element) {
  switch (element->kind()) {
    // Plain integers are what kernels take for lists of these.
    case TypeKind::SymIntType: return c10::impl::GenericList(c10::IntType::get());
    case TypeKind::SymFloatType: return c10::impl::GenericList(c10::FloatType::get());
    case TypeKind::SymBoolType: return c10::impl::GenericList(c10::BoolType::get());
    case TypeKind::ScalarTypeType: return c10::impl::GenericList(c10::IntType::get());
    default: return c10::impl::GenericList(element);
  }
}

IValue to_ivalue(const Literal& literal, const c10::Type& type, std::optional<int32_t> list_size) {
  if (std::holds_alternative<std::monostate>(literal.value)) {
    if (type.kind() != TypeKind::OptionalType) throw LiteralMismatch();
    return IValue();
  }
  const c10::Type& inner = without_optional(type);
  switch (inner.kind()) {
    case TypeKind::ListType:
      return list_value(literal, inner.expectRef<c10::ListType>(), list_size);
    case TypeKind::TensorType: return number_tensor(number(literal));
    case TypeKind::NumberType: return number(literal);
    case TypeKind::IntType:
    case TypeKind::SymIntType: {
      const at::Scalar value = number(literal);
      if (!value.isIntegral(/*includeBool=*/true)) throw LiteralMismatch();
      return value.toLong();
    }
    case TypeKind::FloatType:
    case TypeKind::SymFloatType: {
      const at::Scalar value = number(literal);
      if (value.isComplex()) throw LiteralMismatch();
      return value.toDouble();
    }
    case TypeKind::ComplexType: return number(literal).toComplexDouble();
    case TypeKind::BoolType:
    case TypeKind::SymBoolType: {
      const at::Scalar value = number(literal);
      if (!value.isBoolean()) throw LiteralMismatch();
      return value.toBool();
    }
    case TypeKind::AnyType:
      if (const auto* text = std::get_if<std::string>(&literal.value)) return *text;
      return number(literal);
    case TypeKind::StringType:
      if (const auto* text = std::get_if<std::string>(&literal.value)) return *text;
      throw LiteralMismatch();
    case TypeKind::ScalarTypeType: return to_torch(dtype_from_string(word_of(literal, "dtype")));
    case TypeKind::DeviceObjType: return to_torch(device_from_string(word_of(literal, "device")));
    case TypeKind::LayoutType: return symbol_value(literal, "layout", kLayouts);
    case TypeKind::MemoryFormatType: return symbol_value(literal, "memory_format", kMemoryFormats);
    default: throw LiteralMismatch();
  }
}

IValue scalar_to_ivalue(const at::Scalar& value, const c10::Type& type) {
  const c10::Type& inner = without_optional(type);
  switch (inner.kind()) {
    case TypeKind::TensorType: return number_tensor(value);
    case TypeKind::NumberType: return value;
    case TypeKind::FloatType:
    case TypeKind::SymFloatType: return value.toDouble();
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (value.isFloatingPoint()) throw LiteralMismatch();
      return value.toLong();
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      if (value.isFloatingPoint()) throw LiteralMismatch();
      return value.toLong() != 0;
    default: throw LiteralMismatch();
  }
}

}  // namespace hostjit
