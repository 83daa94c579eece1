// SPDX-License-Identifier: Apache-2.0
#include "ir/builder.h"

#include <gtest/gtest.h>

#include "ir/printer.h"
#include "ir/verifier.h"

namespace hostjit {
namespace {

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Builder, AppendsOps) {
  Program program("policy");
  Value* x = program.add_input(TensorType::make(DType::kF32, {1, 4}), "x");
  Value* w = program.add_input(TensorType::make(DType::kF32, {8, 4}), "w");
  Builder builder(program);
  Value* h = builder.allocate(TensorType::make(DType::kF32, {1, 8}), "h");
  builder.set_location("model.py:12");
  Op& linear = builder.create(Linear{.input = x, .weight = w, .out = h});
  Value* v = builder.view(h, TensorType::make(DType::kF32, {4}), /*offset=*/4);
  Value* n = builder.size(x, /*dim=*/1);
  Value* two = builder.index_constant(2);
  builder.index_binary(IndexOperation::kMul, n, two);
  program.set_outputs({v});
  verify_program(program);

  EXPECT_EQ(linear.location, "model.py:12");
  EXPECT_EQ(h->producer(), program.body().front().get());
  EXPECT_EQ(x->producer(), nullptr);
  EXPECT_EQ(to_string(program),
            "program @policy(%x: tensor<f32, [1, 4], cpu>, %w: tensor<f32, [8, 4], cpu>) {\n"
            "  %h = allocate() : tensor<f32, [1, 8], cpu>\n"
            "  linear(input=%x, weight=%w, out=%h) loc(\"model.py:12\")\n"
            "  %0 = view(source=%h, offset=4) : tensor<f32, [4], cpu> loc(\"model.py:12\")\n"
            "  %1 = size(source=%x, dim=1) : index loc(\"model.py:12\")\n"
            "  %2 = index_constant(value=2) : index loc(\"model.py:12\")\n"
            "  %3 = index_binary(operation=mul, lhs=%1, rhs=%2) : index loc(\"model.py:12\")\n"
            "  return %0\n"
            "}\n");
}

TEST(Builder, FillsARegion) {
  Program program("p");
  Builder builder(program, program.init());
  builder.allocate(TensorType::make(DType::kF32, {4}));
  EXPECT_EQ(program.init().size(), 1u);
  EXPECT_TRUE(program.body().empty());
}

TEST(Builder, RefusesAWrongOpAndStaysUsable) {
  Program program("p");
  Value* x = program.add_input(TensorType::make(DType::kF32, {4}), "x");
  Builder builder(program);
  builder.set_location("model.py:3");
  EXPECT_EQ(error_of([&] { builder.create(Copy{.source = x}); }),
            "copy (model.py:3): 'out' is missing, expected a value");
  EXPECT_EQ(error_of([&] { builder.create(Allocate{}); }),
            "allocate (model.py:3): 'result' is missing, expected a result");
  EXPECT_EQ(error_of([&] { builder.size(x, /*dim=*/1); }),
            "size (model.py:3): 'dim' is 1, expected a dim of 'source', which has rank 1");
  EXPECT_EQ(error_of([&] { builder.create(LaunchKernel{.kernel = "k", .inputs = {x, nullptr}}); }),
            "launch_kernel 'k' (model.py:3): 'inputs[1]' is missing, expected a value");
  EXPECT_TRUE(program.body().empty());
  builder.size(x, /*dim=*/0);
  verify_program(program);
}

TEST(Verifier, RefusesValuesOfAnotherProgram) {
  Program other("other");
  Value* y = other.add_input(TensorType::make(DType::kF32, {4}), "y");
  Program program("p");
  Value* x = program.add_input(TensorType::make(DType::kF32, {4}), "x");
  Builder(program).create(Copy{.source = y, .out = x});
  EXPECT_EQ(error_of([&] { verify_program(program); }),
            "copy: 'source' is %y, which is not defined here, expected a value defined before");
  Program outputs("outputs");
  outputs.set_outputs({y});
  EXPECT_EQ(error_of([&] { verify_program(outputs); }),
            "program 'outputs': output 0 is %y, which is not defined");
  outputs.set_outputs({nullptr});
  EXPECT_EQ(error_of([&] { verify_program(outputs); }), "program 'outputs': output 0 is missing");
}

TEST(Verifier, RefusesASecondDefinition) {
  Program program("p");
  Builder builder(program);
  Value* x = builder.allocate(TensorType::make(DType::kF32, {4}), "x");
  builder.create(Allocate{.result = x});
  program.body().front().reset();
  program.body().pop_front();
  verify_program(program);
  program.body().push_back(std::make_unique<Op>(Op{Allocate{.result = x}, ""}));
  EXPECT_EQ(error_of([&] { verify_program(program); }), "allocate: defines %x a second time");
}

TEST(Verifier, RefusesTypesThatWereNotMade) {
  Program program("p");
  const TensorType type{DType::kF32, {4}, {}, {}};
  Value* x = program.add_value(type, "x");
  EXPECT_EQ(error_of([&] { Builder(program).create(Allocate{.result = x}); }),
            "tensor type: 0 strides for 1 dims");
}

}  // namespace
}  // namespace hostjit
