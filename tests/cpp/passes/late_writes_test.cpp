// SPDX-License-Identifier: Apache-2.0
#include "passes/late_writes.h"

#include <gtest/gtest.h>

#include <string>

#include "ir/parser.h"

namespace hostjit {
namespace {

bool is_last(const std::string& ops) {
  return writes_inputs_last(parse_program(
      "program @p(%x: tensor<f32, [4], cpu>, %y: tensor<f32, [4], cpu>) {\n" + ops + "}\n"));
}

const char* const kCall =
    "  %a = aten_call(target=\"aten::neg\", inputs=[%y], arguments=[$0]) : tensor<f32, [4], cpu>\n";

TEST(LateWrites, BehindWhatMayFail) {
  EXPECT_TRUE(is_last(std::string(kCall) + "  copy(source=%a, out=%x)\n  return %a\n"));
  EXPECT_TRUE(is_last(std::string(kCall) + "  return %a\n"));
}

TEST(LateWrites, AheadOfWhatMayFail) {
  EXPECT_FALSE(is_last(std::string("  copy(source=%y, out=%x)\n") + kCall + "  return %a\n"));
  EXPECT_FALSE(
      is_last("  %v = view(source=%x) : tensor<f32, [2], cpu>\n  fill(value=0.0, out=%v)\n" +
              std::string(kCall) + "  return %a\n"));
}

TEST(LateWrites, AheadOfPlainWork) {
  EXPECT_TRUE(
      is_last("  copy(source=%y, out=%x)\n  %v = view(source=%x) : tensor<f32, [2, 2], cpu>\n"
              "  %a = allocate() : tensor<f32, [2, 2], cpu>\n"
              "  matmul(lhs=%v, rhs=%v, out=%a)\n  return %a\n"));
}

TEST(LateWrites, AheadOfAnOperatorThatNeverFails) {
  EXPECT_TRUE(
      is_last("  copy(source=%y, out=%x)\n"
              "  %a = aten_call(target=\"aten::dot\", inputs=[%x, %y], arguments=[$0, $1])"
              " : tensor<f32, [], cpu>\n  return %a\n"));
}

TEST(LateWrites, ByWhatMayFail) {
  EXPECT_FALSE(
      is_last("  aten_call(target=\"aten::neg_\", mutated=[%x], arguments=[$0])\n  return %x\n"));
}

TEST(LateWrites, BehindACheck) {
  EXPECT_TRUE(is_last(
      "  aten_call(target=\"aten::_assert_async\", inputs=[%y], arguments=[$0], pure=false)\n"
      "  copy(source=%y, out=%x)\n  return\n"));
}

TEST(LateWrites, BesideOtherEffects) {
  EXPECT_FALSE(is_last(
      "  %a = aten_call(target=\"aten::bernoulli\", inputs=[%y], arguments=[$0, none], pure=false)"
      " : tensor<f32, [4], cpu>\n  copy(source=%a, out=%x)\n  return %a\n"));
}

}  // namespace
}  // namespace hostjit
