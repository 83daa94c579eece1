// SPDX-License-Identifier: Apache-2.0
#include "support/hexadecimal.h"

#include <gtest/gtest.h>

#include "support/check.h"

namespace hostjit {
namespace {

TEST(Hexadecimal, KeepsEveryByte) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(bytes_of_hexadecimal(hexadecimal(bytes)), bytes);
  EXPECT_EQ(hexadecimal(std::string("\x7f\x00\xff", 3)), "7f00ff\n");
  EXPECT_EQ(hexadecimal(""), "");
  EXPECT_EQ(bytes_of_hexadecimal("4A 4b\n\t4c"), "JKL");
}

TEST(Hexadecimal, RefusesWhatIsNone) {
  EXPECT_THROW(bytes_of_hexadecimal("0g"), Error);
  EXPECT_THROW(bytes_of_hexadecimal("012"), Error);
}

}  // namespace
}  // namespace hostjit
