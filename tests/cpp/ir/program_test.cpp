// SPDX-License-Identifier: Apache-2.0
#include "ir/program.h"

#include <gtest/gtest.h>

#include <limits>

#include "ir/builder.h"
#include "ir/effects.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"

namespace hostjit {
namespace {

constexpr const char* kText = R"(program @p(%x: tensor<f32, [4], cpu>) arena(bytes=64) {
  init {
    %c = constant(values=[1.0, 2.0, 3.0, 4.0]) : tensor<f32, [4], cpu>
  }
  %h = allocate(offset=0) : tensor<f32, [4], cpu>
  copy(source=%c, out=%h)
  %y = aten_call(target="aten::add.Tensor", inputs=[%x, %h], arguments=[$0, $1, nan]) : tensor<f32, [4], cpu> loc("a.py:1")
  launch_kernel(kernel="k", in_out=[%y])
  return %y
}
kernel @k """text""")";

Program parse_with(const std::string& from, const std::string& to) {
  std::string text = kText;
  const size_t place = text.find(from);
  if (place == std::string::npos) throw_error(concat("no '", from, "' in the text"));
  return parse_program(text.replace(place, from.size(), to));
}

TEST(Equality, NamesDoNotCount) {
  const Program program = parse_program(kText);
  EXPECT_TRUE(structurally_equal(program, program));
  EXPECT_TRUE(structurally_equal(program, parse_program(kText)));
  EXPECT_TRUE(structurally_equal(
      program, parse_with("%c = constant(values=[1.0, 2.0, 3.0, 4.0]) : tensor<f32, [4], cpu>\n"
                          "  }\n"
                          "  %h = allocate(offset=0) : tensor<f32, [4], cpu>\n"
                          "  copy(source=%c, out=%h)\n"
                          "  %y = aten_call(target=\"aten::add.Tensor\", inputs=[%x, %h]",
                          "%0 = constant(values=[1.0, 2.0, 3.0, 4.0]) : tensor<f32, [4], cpu>\n"
                          "  }\n"
                          "  %1 = allocate(offset=0) : tensor<f32, [4], cpu>\n"
                          "  copy(source=%0, out=%1)\n"
                          "  %y = aten_call(target=\"aten::add.Tensor\", inputs=[%x, %1]")));
}

TEST(Equality, EverythingElseCounts) {
  const Program program = parse_program(kText);
  const std::pair<const char*, const char*> changes[] = {
      {"@p", "@q"},
      {"bytes=64", "bytes=128"},
      {"[4], cpu>)", "[5], cpu>)"},
      {"[1.0, 2.0", "[1.0, -2.0"},
      {"offset=0", "offset=-1"},
      {"copy(source=%c", "copy(source=%x"},
      {"inputs=[%x, %h]", "inputs=[%h, %x]"},
      {"inputs=[%x, %h]", "inputs=[%x, %h, %h]"},
      {"nan", "-nan"},
      {"nan", "none"},
      {"loc(\"a.py:1\")", "loc(\"a.py:2\")"},
      {"[4], cpu> loc", "[4], strides=[2], cpu> loc"},
      {"in_out", "inputs"},
      {"return %y", "return %x"},
      {"return %y", "return %y, %y"},
      {"\"\"\"text", "\"\"\"other text"},
      {"return", "range_push(label=\"a\") range_pop() return"},
  };
  for (const auto& [from, to] : changes) {
    EXPECT_FALSE(structurally_equal(program, parse_with(from, to))) << from << " -> " << to;
  }
}

TEST(Equality, ComparesNumbersByTheirBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto program_with = [](double beta) {
    Program program("p");
    Value* a = program.add_input(TensorType::make(DType::kF32, {2, 2}), "a");
    Value* b = program.add_input(TensorType::make(DType::kF32, {2, 2}), "b");
    Builder(program).create(Addmm{.bias = a, .lhs = a, .rhs = a, .beta = beta, .out = b});
    return program;
  };
  EXPECT_TRUE(structurally_equal(program_with(nan), program_with(nan)));
  EXPECT_FALSE(structurally_equal(program_with(0.0), program_with(-0.0)));
  const Program program = program_with(nan);
  EXPECT_TRUE(structurally_equal(program, parse_program(to_string(program))));
}

TEST(Program, CloneIsEqualAndIndependent) {
  const Program program = parse_program(kText);
  const std::string before = to_string(program);
  Program copy = program.clone();
  EXPECT_TRUE(structurally_equal(program, copy));
  verify_program(copy);
  copy.body().front()->get_if<Allocate>()->offset = -1;
  copy.remove_kernel("k");
  copy.set_outputs({});
  EXPECT_FALSE(structurally_equal(program, copy));
  EXPECT_EQ(to_string(program), before);
}

TEST(Program, NamesAreUnique) {
  Program program("p");
  EXPECT_EQ(program.add_input(IndexType{}, "n")->name(), "n");
  EXPECT_EQ(program.add_value(IndexType{}, "n")->name(), "n_0");
  EXPECT_EQ(program.add_value(IndexType{}, "1")->name(), "1");
  EXPECT_EQ(program.add_value(IndexType{})->name(), "2");
  EXPECT_THROW(program.add_input(IndexType{}, "n"), Error);
}

TEST(Program, KernelsOfOneNameHaveOneText) {
  Program program("p");
  program.add_kernel({"k", "text"});
  program.add_kernel({"k", "text"});
  EXPECT_EQ(program.kernels().size(), 1u);
  EXPECT_THROW(program.add_kernel({"k", "other"}), Error);
}

TEST(Program, ReplacesUsesAlongChains) {
  Program program = parse_program(R"(program @p(%a: index, %b: index, %c: index) {
  %d = index_binary(operation=add, lhs=%a, rhs=%a) : index
  return %a, %d
})");
  Value* a = program.inputs()[0];
  Value* b = program.inputs()[1];
  Value* c = program.inputs()[2];
  program.replace_uses({{a, b}, {b, c}});
  EXPECT_EQ(to_string(*program.body().front()),
            "%d = index_binary(operation=add, lhs=%c, rhs=%c) : index");
  EXPECT_EQ(program.outputs()[0], c);
}

TEST(Effects, ComeFromTheFields) {
  const Program program = parse_program(kText);
  auto position = program.body().begin();
  const Op& allocate = **position++;
  const Op& copy = **position++;
  const Op& call = **position++;
  ASSERT_EQ(operand_uses(copy).size(), 2u);
  EXPECT_EQ(operand_uses(copy)[0].access, Access::kRead);
  EXPECT_EQ(operand_uses(copy)[1].access, Access::kWrite);
  EXPECT_EQ(operand_uses(copy)[1].value, results_of(allocate)[0]);
  EXPECT_TRUE(aliased_operands(call).empty());
  EXPECT_TRUE(is_removable(call));
  const Program aliasing = parse_program(R"(program @p(%x: tensor<f32, [4], cpu>) {
  %a = aten_call(target="aten::f", inputs=[%x], mutated=[], aliases=[0], pure=false) : tensor<f32, [4], cpu>
  %v = view(source=%a) : tensor<f32, [2], cpu>
  range_push(label="a")
  range_pop()
  return %v
})");
  auto op = aliasing.body().begin();
  EXPECT_EQ(aliased_operands(**op), std::vector<Value*>{aliasing.inputs()[0]});
  EXPECT_FALSE(is_removable(**op++));
  EXPECT_EQ(aliased_operands(**op).size(), 1u);
  EXPECT_TRUE(is_removable(**op++));
  EXPECT_FALSE(is_removable(**op));
}

}  // namespace
}  // namespace hostjit
