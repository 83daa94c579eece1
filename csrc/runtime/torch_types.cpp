// SPDX-License-Identifier: Apache-2.0
#include "runtime/torch_types.h"

#include <array>

#include "support/check.h"

namespace hostjit {
namespace {

using c10::ScalarType;

// A dtype of the list that lacks a case does not compile (-Wswitch).
constexpr ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kBool: return ScalarType::Bool;
    case DType::kU8: return ScalarType::Byte;
    case DType::kI8: return ScalarType::Char;
    case DType::kU16: return ScalarType::UInt16;
    case DType::kI16: return ScalarType::Short;
    case DType::kU32: return ScalarType::UInt32;
    case DType::kI32: return ScalarType::Int;
    case DType::kU64: return ScalarType::UInt64;
    case DType::kI64: return ScalarType::Long;
    case DType::kF16: return ScalarType::Half;
    case DType::kBF16: return ScalarType::BFloat16;
    case DType::kF32: return ScalarType::Float;
    case DType::kF64: return ScalarType::Double;
    case DType::kC32: return ScalarType::ComplexHalf;
    case DType::kC64: return ScalarType::ComplexFloat;
    case DType::kC128: return ScalarType::ComplexDouble;
    case DType::kF8E4M3FN: return ScalarType::Float8_e4m3fn;
    case DType::kF8E5M2: return ScalarType::Float8_e5m2;
    case DType::kF8E4M3FNUZ: return ScalarType::Float8_e4m3fnuz;
    case DType::kF8E5M2FNUZ: return ScalarType::Float8_e5m2fnuz;
    case DType::kF8E8M0FNU: return ScalarType::Float8_e8m0fnu;
  }
  return ScalarType::Undefined;
}

constexpr auto kDTypes = std::to_array<DType>({
#define HOSTJIT_LIST_DTYPE(enumerator, text, bytes, torch_name) DType::enumerator,
    HOSTJIT_FOR_EACH_DTYPE(HOSTJIT_LIST_DTYPE)
#undef HOSTJIT_LIST_DTYPE
});

constexpr c10::DeviceType device_type(DeviceType type) {
  switch (type) {
    case DeviceType::kCPU: return c10::DeviceType::CPU;
    case DeviceType::kCUDA: return c10::DeviceType::CUDA;
    case DeviceType::kMeta: return c10::DeviceType::Meta;
  }
  return c10::DeviceType::CPU;
}

}  // namespace

ScalarType to_torch(DType dtype) { return scalar_type(dtype); }

c10::Device to_torch(Device device) {
  if (device.type == DeviceType::kMeta) return c10::DeviceType::Meta;  // PyTorch knows one
  return {device_type(device.type), device.index};
}

c10::Scalar to_torch(double number, c10::ScalarType dtype) {
  if (!c10::isIntegralType(dtype, /*includeBool=*/true)) return number;
  return static_cast<int64_t>(number);
}

std::optional<DType> dtype_from_torch(ScalarType dtype) {
  for (const DType candidate : kDTypes) {
    if (scalar_type(candidate) == dtype) return candidate;
  }
  return std::nullopt;
}

Device device_from_torch(c10::Device device) {
  switch (device.type()) {
    case c10::DeviceType::CPU: return {DeviceType::kCPU, -1};
    case c10::DeviceType::CUDA:
      return {DeviceType::kCUDA, device.has_index() ? device.index() : int8_t{0}};
    case c10::DeviceType::Meta:
      return {DeviceType::kMeta, device.has_index() ? device.index() : int8_t{0}};
    default:
      throw_error(concat("device ", device.str(), " is not supported, expected cpu or cuda"));
  }
}

}  // namespace hostjit
