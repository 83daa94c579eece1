// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace hostjit {

// X(enumerator, text in Host IR and in torch)
#define HOSTJIT_FOR_EACH_DEVICE_TYPE(X) \
  X(kCPU, "cpu")                        \
  X(kCUDA, "cuda")                      \
  X(kMeta, "meta")

enum class DeviceType : uint8_t {
#define HOSTJIT_DEVICE_ENUMERATOR(enumerator, text) enumerator,
  HOSTJIT_FOR_EACH_DEVICE_TYPE(HOSTJIT_DEVICE_ENUMERATOR)
#undef HOSTJIT_DEVICE_ENUMERATOR
};

// Where a tensor lives. The CPU has no index; any other device has one.
struct Device {
  DeviceType type = DeviceType::kCPU;
  int8_t index = -1;

  friend bool operator==(const Device&, const Device&) = default;
};

// "cpu", "cuda:0".
std::string to_string(Device device);

// Throws Error that names the text and the valid device types.
Device device_from_string(std::string_view text);

}  // namespace hostjit
