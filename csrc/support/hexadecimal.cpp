// SPDX-License-Identifier: Apache-2.0
#include "support/hexadecimal.h"

#include "support/check.h"

namespace hostjit {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr size_t kBytesPerLine = 48;

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size() + bytes.size() / kBytesPerLine + 1);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
    if ((i + 1) % kBytesPerLine == 0 || i + 1 == bytes.size()) text += '\n';
  }
  return text;
}

std::string bytes_of_hexadecimal(std::string_view digits) {
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  int high = -1;
  for (const char c : digits) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    const int digit = digit_of(c);
    HOSTJIT_CHECK(digit >= 0, "bytes have the character '", c, "', expected hexadecimal digits");
    if (high < 0) {
      high = digit;
    } else {
      bytes += static_cast<char>(16 * high + digit);
      high = -1;
    }
  }
  HOSTJIT_CHECK(high < 0, "bytes have an odd number of hexadecimal digits");
  return bytes;
}

}  // namespace hostjit
