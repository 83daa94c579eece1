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
  %high = view(source=%a, offset=4) : tensor<f32, [4], cpu>
  %last = view(source=%high, offset=3) : tensor<f32, [1], cpu>
  %even = view(source=%a) : tensor<f32, [4], strides=[2], cpu>
  %rest = view(source=%a, offset=8) : tensor<f32, [0], cpu>
  %somewhere = view(source=%a, offset=n) : tensor<f32, [2], cpu>
  %there = view(source=%somewhere, offset=1) : tensor<f32, [1], cpu>
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

  bool share_root(const std::string& a, const std::string& b) const {
    return aliases_.share_root(values_.at(a), values_.at(b));
  }

  // What a copy would use.
  bool overlap(const std::string& a, const std::string& b) const {
    const Op copy{Copy{}, ""};
    const ByteRange bytes = aliases_.bytes_used(copy, values_.at(a));
    return bytes.overlaps(aliases_.bytes_used(copy, values_.at(b)));
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

TEST_F(AliasAnalysisTest, InputsHaveRootsOfTheirOwn) {
  EXPECT_FALSE(share_root("x", "y"));
  EXPECT_TRUE(share_root("x_view", "x"));
  EXPECT_FALSE(share_root("x", "a"));
  EXPECT_FALSE(share_root("a", "b"));
  EXPECT_TRUE(share_root("view", "alias"));
  EXPECT_FALSE(share_root("a", "fresh"));
  EXPECT_FALSE(share_root("n", "n"));
}

TEST_F(AliasAnalysisTest, ViewsOfOtherBytesAreApart) {
  EXPECT_FALSE(overlap("view", "high"));
  EXPECT_FALSE(overlap("slice", "last"));
  EXPECT_TRUE(overlap("high", "last"));
  EXPECT_TRUE(overlap("a", "last"));
  EXPECT_TRUE(overlap("even", "high"));
  EXPECT_FALSE(overlap("even", "last"));  // elements 0 to 6, and 7
  EXPECT_FALSE(overlap("rest", "high"));  // behind it, without elements
}

TEST_F(AliasAnalysisTest, ViewsAtASymbolAndResultsOfAtenAreAnywhere) {
  for (const std::string anywhere : {"somewhere", "there", "alias"}) {
    EXPECT_TRUE(overlap(anywhere, "view")) << anywhere;
    EXPECT_TRUE(overlap(anywhere, "last")) << anywhere;
  }
}

TEST_F(AliasAnalysisTest, AtenCallsMayReachAllOfARoot) {
  const ByteRange everything;
  for (const auto& op : program_.body()) {
    if (!op->is<AtenCall>()) continue;
    EXPECT_TRUE(aliases_.bytes_used(*op, values_.at("last")).contains(everything));
  }
}

TEST_F(AliasAnalysisTest, EscapesWhatAnOutputMayReferTo) {
  EXPECT_TRUE(aliases_.escapes(values_.at("a")));
  EXPECT_TRUE(aliases_.escapes(values_.at("alias")));
  EXPECT_FALSE(aliases_.escapes(values_.at("b")));
  EXPECT_FALSE(aliases_.escapes(values_.at("x")));
}

}  // namespace
}  // namespace hostjit
