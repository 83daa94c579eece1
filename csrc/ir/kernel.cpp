// SPDX-License-Identifier: Apache-2.0
#include "ir/kernel.h"

#include <bit>
#include <charconv>

#include "support/check.h"

namespace hostjit {

std::string_view to_string(KernelLanguage language) {
  switch (language) {
#define HOSTJIT_KERNEL_LANGUAGE_NAME(enumerator, name, is_cuda) \
  case KernelLanguage::enumerator: return name;
    HOSTJIT_FOR_EACH_KERNEL_LANGUAGE(HOSTJIT_KERNEL_LANGUAGE_NAME)
#undef HOSTJIT_KERNEL_LANGUAGE_NAME
  }
  return "";
}

bool is_cuda(KernelLanguage language) {
  switch (language) {
#define HOSTJIT_KERNEL_LANGUAGE_IS_CUDA(enumerator, name, is_cuda) \
  case KernelLanguage::enumerator: return is_cuda;
    HOSTJIT_FOR_EACH_KERNEL_LANGUAGE(HOSTJIT_KERNEL_LANGUAGE_IS_CUDA)
#undef HOSTJIT_KERNEL_LANGUAGE_IS_CUDA
  }
  return false;
}

KernelLanguage kernel_language_from_string(std::string_view name) {
  std::string names;
#define HOSTJIT_KERNEL_LANGUAGE_CASE(enumerator, text, is_cuda) \
  if (name == (text)) return KernelLanguage::enumerator;        \
  names += concat(names.empty() ? "" : ", ", text);
  HOSTJIT_FOR_EACH_KERNEL_LANGUAGE(HOSTJIT_KERNEL_LANGUAGE_CASE)
#undef HOSTJIT_KERNEL_LANGUAGE_CASE
  throw_error(concat("unknown language of a kernel '", name, "', expected one of: ", names));
}

std::string_view to_string(ParameterType type) {
  switch (type) {
#define HOSTJIT_PARAMETER_TYPE_NAME(enumerator, name, bytes) \
  case ParameterType::enumerator: return name;
    HOSTJIT_FOR_EACH_PARAMETER_TYPE(HOSTJIT_PARAMETER_TYPE_NAME)
#undef HOSTJIT_PARAMETER_TYPE_NAME
  }
  return "";
}

int64_t size_in_bytes(ParameterType type) {
  switch (type) {
#define HOSTJIT_PARAMETER_TYPE_BYTES(enumerator, name, bytes) \
  case ParameterType::enumerator: return bytes;
    HOSTJIT_FOR_EACH_PARAMETER_TYPE(HOSTJIT_PARAMETER_TYPE_BYTES)
#undef HOSTJIT_PARAMETER_TYPE_BYTES
  }
  return 0;
}

ParameterType parameter_type_from_string(std::string_view name) {
  std::string names;
#define HOSTJIT_PARAMETER_TYPE_CASE(enumerator, text, bytes) \
  if (name == (text)) return ParameterType::enumerator;      \
  names += concat(names.empty() ? "" : ", ", text);
  HOSTJIT_FOR_EACH_PARAMETER_TYPE(HOSTJIT_PARAMETER_TYPE_CASE)
#undef HOSTJIT_PARAMETER_TYPE_CASE
  throw_error(concat("unknown type of a parameter '", name, "', expected one of: ", names));
}

bool holds(ParameterType type, int64_t value) {
  const auto bits = static_cast<uint64_t>(8 * size_in_bytes(type));
  if (bits == 64) return true;
  const auto limit = static_cast<int64_t>(uint64_t{1} << bits);
  return value >= -limit / 2 && value < limit;
}

uint64_t float_bits(double value, ParameterType type) {
  if (type == ParameterType::kF32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<uint64_t>(value);
}

bool has_signature(const Kernel& kernel) {
  return is_cuda(kernel.language) || kernel.language == KernelLanguage::kCFunction ||
         (kernel.language == KernelLanguage::kLlvmIr && !kernel.entry.empty());
}

bool is_address(KernelLanguage language) {
  return language == KernelLanguage::kCudaFunction || language == KernelLanguage::kCFunction;
}

uint64_t function_address(const Kernel& kernel) {
  const std::string& text = kernel.text;
  uint64_t address = 0;
  const char* begin = text.data() + (text.starts_with("0x") ? 2 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, address, /*base=*/16);
  HOSTJIT_CHECK(error == std::errc() && stop == end && text.starts_with("0x") && address != 0,
                "kernel @", kernel.name, ": its function is '", text,
                "', expected an address such as 0x7f00");
  return address;
}

}  // namespace hostjit
