// SPDX-License-Identifier: Apache-2.0
#include "ir/row_symbols.h"

#include <gtest/gtest.h>

#include "ir/parser.h"

namespace hostjit {
namespace {

constexpr const char* kText = R"(
program @p(%x: tensor<f32, [n, 4], cpu>, %y: tensor<f32, [n, m], cpu>, %k: index) {
  %same = size(source=%y, dim=0) : index
  %four = size(source=%x, dim=1) : index
  %m = size(source=%y, dim=1) : index
  %n = size(source=%x, dim=0) : index
  %area = index_binary(operation=mul, lhs=%same, rhs=%four) : index
  %of_call = index_binary(operation=add, lhs=%n, rhs=%k) : index
  %mod = index_binary(operation=mod, lhs=%n, rhs=%m) : index
  return
})";

TEST(RowSymbols, InputSymbolsAreInTheOrderOfTheirOps) {
  const Program program = parse_program(kText);
  const RowSymbols symbols(program);
  EXPECT_EQ(symbols.input_names(), (std::vector<std::string>{"m", "n"}));
  ASSERT_EQ(symbols.num_inputs(), 2u);
  EXPECT_EQ(symbols.sources()[0].input, 1);
  EXPECT_EQ(symbols.sources()[0].dim, 1);
  EXPECT_EQ(symbols.sources()[1].input, 0);
  EXPECT_EQ(symbols.sources()[1].dim, 0);
}

TEST(RowSymbols, EvaluatesWhatFollowsFromSizes) {
  const Program program = parse_program(kText);
  const RowSymbols symbols(program);
  const std::vector<int64_t> values = symbols.evaluate(std::vector<int64_t>{5, 13});
  EXPECT_EQ(values[symbols.at("m")], 5);
  EXPECT_EQ(values[symbols.at("n")], 13);
  EXPECT_EQ(values[symbols.at("same")], 13);
  EXPECT_EQ(values[symbols.at("four")], 4);
  EXPECT_EQ(values[symbols.at("area")], 52);
  EXPECT_EQ(values[symbols.at("mod")], 3);
}

TEST(RowSymbols, WhatACallBringsIsNone) {
  const RowSymbols symbols(parse_program(kText));
  EXPECT_FALSE(symbols.find("of_call"));
  EXPECT_FALSE(symbols.find("k"));
  EXPECT_THROW(symbols.at("of_call"), InternalError);
}

TEST(RowSymbols, ANumberThatSizesFollowFromIsAnInputSymbol) {
  const RowSymbols symbols(parse_program(R"(
program @p(%k: index, %x: tensor<f32, [n, 4], cpu>, %j: index, %unused: index) {
  %n = size(source=%x, dim=0) : index
  %four = size(source=%x, dim=1) : index
  %begin = index_binary(operation=mul, lhs=%j, rhs=%four) : index
  %scaled = index_binary(operation=mul, lhs=%k, rhs=%n) : index
  %y = view(source=%x, offset=begin) : tensor<f32, [4], cpu>
  return %y, %scaled
})"));
  EXPECT_EQ(symbols.input_names(), (std::vector<std::string>{"j", "n"}));
  EXPECT_EQ(symbols.sources()[0].input, 2);
  EXPECT_EQ(symbols.sources()[0].dim, RowSymbols::Source::kItself);
  EXPECT_FALSE(symbols.find("k"));
  EXPECT_FALSE(symbols.find("scaled"));
  EXPECT_EQ(symbols.evaluate(std::vector<int64_t>{3, 9})[symbols.at("begin")], 12);
}

TEST(RowSymbols, DivisionByZeroIsAnError) {
  const RowSymbols symbols(parse_program(kText));
  EXPECT_THROW(symbols.evaluate(std::vector<int64_t>{0, 13}), Error);
}

}  // namespace
}  // namespace hostjit
