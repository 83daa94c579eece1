// SPDX-License-Identifier: Apache-2.0
#include "support/literal.h"

#include <gtest/gtest.h>

#include <limits>

namespace hostjit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Literal, HasATextForm) {
  EXPECT_EQ(to_string(Literal{}), "none");
  EXPECT_EQ(to_string(Literal{true}), "true");
  EXPECT_EQ(to_string(Literal{int64_t{-7}}), "-7");
  EXPECT_EQ(to_string(Literal{1.0}), "1.0");
  EXPECT_EQ(to_string(Literal{std::string("a \"b\"\n\\")}), "\"a \\\"b\\\"\\n\\\\\"");
  EXPECT_EQ(to_string(Literal{std::complex<double>(1, -kInfinity)}), "complex(1.0, -inf)");
  EXPECT_EQ(to_string(Literal{Literal::Symbol{"dtype", "f32"}}), "dtype(f32)");
  EXPECT_EQ(to_string(Literal{Literal::Operand{3}}), "$3");
  EXPECT_EQ(to_string(Literal{Literal::List{{int64_t{1}}, {Literal::List{}}, {}}}),
            "[1, [], none]");
}

TEST(Literal, NumbersAreShortAndExact) {
  EXPECT_EQ(double_to_string(0.1), "0.1");
  EXPECT_EQ(double_to_string(-0.0), "-0.0");
  EXPECT_EQ(double_to_string(1e300), "1e+300");
  EXPECT_EQ(double_to_string(100), "100.0");
  EXPECT_EQ(double_to_string(kInfinity), "inf");
  EXPECT_EQ(double_to_string(-kInfinity), "-inf");
  EXPECT_EQ(double_to_string(kNaN), "nan");
  EXPECT_EQ(double_to_string(-kNaN), "-nan");
}

TEST(Literal, ComparesNumbersByTheirBits) {
  EXPECT_EQ(Literal{kNaN}, Literal{kNaN});
  EXPECT_FALSE(Literal{0.0} == Literal{-0.0});
  EXPECT_FALSE(Literal{1.0} == Literal{int64_t{1}});
  EXPECT_EQ((Literal{std::complex<double>(kNaN, 0)}), (Literal{std::complex<double>(kNaN, 0)}));
  EXPECT_FALSE((Literal{std::complex<double>(0, 0)}) == (Literal{std::complex<double>(0, -0.0)}));
}

}  // namespace
}  // namespace hostjit
