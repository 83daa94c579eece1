// SPDX-License-Identifier: Apache-2.0
#include "support/device.h"

#include <array>
#include <charconv>

#include "support/check.h"

namespace hostjit {
namespace {

constexpr auto kNames = std::to_array<std::string_view>({
#define HOSTJIT_DEVICE_NAME(enumerator, text) text,
    HOSTJIT_FOR_EACH_DEVICE_TYPE(HOSTJIT_DEVICE_NAME)
#undef HOSTJIT_DEVICE_NAME
});

}  // namespace

std::string to_string(Device device) {
  std::string text(kNames[static_cast<size_t>(device.type)]);
  if (device.index >= 0) text += concat(":", static_cast<int>(device.index));
  return text;
}

Device device_from_string(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] != name) continue;
    Device device{static_cast<DeviceType>(i), -1};
    if (colon != std::string_view::npos) {
      const char* first = text.data() + colon + 1;
      const char* last = text.data() + text.size();
      int index = -1;
      const auto [end, status] = std::from_chars(first, last, index);
      HOSTJIT_CHECK(status == std::errc() && end == last && index >= 0 && index < 128,
                    "malformed device index in '", text, "'");
      device.index = static_cast<int8_t>(index);
    } else if (device.type != DeviceType::kCPU) {
      device.index = 0;
    }
    return device;
  }
  throw_error(concat("unknown device '", text, "', expected cpu, cuda:<index> or meta:<index>"));
}

}  // namespace hostjit
