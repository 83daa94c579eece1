// SPDX-License-Identifier: Apache-2.0
#include "passes/alias_analysis.h"

#include <gtest/gtest.h>

#include <string>
#include <unordered_map>

#include "ir/effects.h"
#include "ir/parser.h"

namespace hostjit {
namespace {

class AliasAnalysisTest : public testing::Test {
 protected:
  AliasAnalysisTest()
      : program_(parse_program(R"(
program @p(%x: tensor<f32, [8], cpu>, %y: tensor<f32, [8], cpu>, %n: index) {
  %a = allocate() : tensor<f32, [8], cpu>
  fill(value=0.0, out=%a)
  %b = allocate() : tensor<f32, [8], cpu>
  fill(value=0.0, out=%b)
  %view = view(source=%a) : tensor<f32, [4], cpu>
  %slice = view(source=%view, offset=1) : tensor<f32, [2], cpu>
  %fresh = aten_call(target="aten::neg", inputs=[%a], arguments=[$0]) : tensor<f32, [8], cpu>
  %alias = aten_call(target="aten::detach", inputs=[%slice], arguments=[$0], aliases=[0]) : tensor<f32, [2], cpu>
  %x_view = view(source=%x) : tensor<f32, [4], cpu>
  return %alias
}
)")),
        aliases_(program_) {
    for (Value* input : program_.inputs()) values_[input->name()] = input;
    for (const auto& op : program_.body()) {
      for (Value* result : results_of(*op)) values_[result->name()] = result;
    }
  }

  std::string roots(const std::string& name) const {
    std::string names;
    for (const Value* root : aliases_.roots(values_.at(name))) names += root->name() + " ";
    return names;
  }

  bool may_alias(const std::string& a, const std::string& b) const {
    return aliases_.may_alias(values_.at(a), values_.at(b));
  }

  Program program_;
  AliasAnalysis aliases_;
  std::unordered_map<std::string, Value*> values_;
};

TEST_F(AliasAnalysisTest, FollowsViewsAndAtenAliasesToTheRoots) {
  EXPECT_EQ(roots("a"), "a ");
  EXPECT_EQ(roots("slice"), "a ");
  EXPECT_EQ(roots("fresh"), "fresh ");
  EXPECT_EQ(roots("alias"), "a alias ");
  EXPECT_EQ(roots("x_view"), "x ");
  EXPECT_EQ(roots("n"), "");
}

TEST_F(AliasAnalysisTest, InputsMayAliasEachOtherAndNothingElse) {
  EXPECT_TRUE(may_alias("x", "y"));
  EXPECT_TRUE(may_alias("x_view", "y"));
  EXPECT_FALSE(aliases_.share_root(values_.at("x"), values_.at("y")));
  EXPECT_FALSE(may_alias("x", "a"));
  EXPECT_FALSE(may_alias("a", "b"));
  EXPECT_TRUE(may_alias("view", "alias"));
  EXPECT_FALSE(may_alias("a", "fresh"));
  EXPECT_FALSE(may_alias("n", "n"));
}

TEST_F(AliasAnalysisTest, EscapesWhatAnOutputMayReferTo) {
  EXPECT_TRUE(aliases_.escapes(values_.at("a")));
  EXPECT_TRUE(aliases_.escapes(values_.at("alias")));
  EXPECT_FALSE(aliases_.escapes(values_.at("b")));
  EXPECT_FALSE(aliases_.escapes(values_.at("x")));
}

}  // namespace
}  // namespace hostjit
