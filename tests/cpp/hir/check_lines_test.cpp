// SPDX-License-Identifier: Apache-2.0
#include "hir/check_lines.h"

#include <gtest/gtest.h>

namespace hostjit {
namespace {

using Kind = CheckLine::Kind;

TEST(CheckLines, FindsPartsOfLinesInOrder) {
  EXPECT_EQ(check_output({{Kind::kCheck, "b"}, {Kind::kCheck, "d  e"}}, "a\nxbx\nc\nd e\n"), "");
  EXPECT_EQ(check_output({{Kind::kCheck, "c"}, {Kind::kCheck, "b"}}, "a\nb\nc\n"),
            "CHECK: b\nnot found");
}

TEST(CheckLines, NextIsTheNextLine) {
  EXPECT_EQ(check_output({{Kind::kCheck, "a"}, {Kind::kNext, "b"}}, "a\nb\n"), "");
  EXPECT_EQ(check_output({{Kind::kCheck, "a"}, {Kind::kNext, "c"}}, "a\nb\nc\n"),
            "CHECK-NEXT: c\nfound: b");
  EXPECT_EQ(check_output({{Kind::kCheck, "a"}, {Kind::kNext, "b"}}, "a\n"),
            "CHECK-NEXT: b\nfound: the end");
}

TEST(CheckLines, NotHoldsBetweenMatches) {
  const std::vector<CheckLine> checks = {
      {Kind::kCheck, "a"}, {Kind::kNot, "x"}, {Kind::kCheck, "b"}, {Kind::kNot, "y"}};
  EXPECT_EQ(check_output(checks, "x\ny\na\ny\nb\nx\n"), "");
  EXPECT_EQ(check_output(checks, "a\nx\nb\n"), "CHECK-NOT: x\nfound: x");
  EXPECT_EQ(check_output(checks, "a\nb\nc\ny\n"), "CHECK-NOT: y\nfound: y");
}

}  // namespace
}  // namespace hostjit
