// SPDX-License-Identifier: Apache-2.0
#include "codegen/epilogues.h"

#include <gtest/gtest.h>

#include "ir/parser.h"
#include "tools/runtime_comparison.h"

namespace hostjit {
namespace {

// A layer, and a kernel on its result: c = f(a, b), where a and c are placed as told.
struct Options {
  std::string place_of_c = "0";
  std::string in_place = "in_place=[0, 0]";
  std::string between = {};     // ops between the layer and the launch
  std::string other = "%y";     // the kernel's second operand
  std::string read = "i64 %i";  // the place that it reads of the first
  std::string begin = "0";
  std::string rows = "1";
};

std::string text_of(const Options& options) {
  const std::string type = "tensor<f32, [" + options.rows + ", 40], cpu>";
  return R"(
program @layer(%x: tensor<f32, [)" +
         options.rows + R"(, 24], cpu>, %weight: tensor<f32, [40, 24], cpu>,
               %bias: tensor<f32, [40], cpu>, %y: )" +
         type + R"() arena(bytes=4096, lower_bound=4096, alignment=64) {
  %a = allocate(offset=0) : )" +
         type + R"(
  linear(input=%x, weight=%weight, bias=%bias, out=%a)
  )" + options.between +
         R"(
  %c = allocate(offset=)" +
         options.place_of_c + ") : " + type + R"(
  launch_kernel(kernel="k", inputs=[%a, )" +
         options.other + "], outputs=[%c], " + options.in_place + R"()
  %result = allocate() : )" +
         type + R"(
  copy(source=%c, out=%result)
  return %result
}
kernel @k """
define void @k(ptr %a, ptr %b, ptr %c) {
entry:
  br label %loop
loop:
  %i = phi i64 [)" +
         options.begin + R"(, %entry], [%n, %loop]
  %pa = getelementptr inbounds float, ptr %a, )" +
         options.read + R"(
  %va = load float, ptr %pa
  %pb = getelementptr inbounds float, ptr %b, i64 %i
  %vb = load float, ptr %pb
  %product = fmul float %va, %vb
  %r = fadd float %product, %va
  %pc = getelementptr inbounds float, ptr %c, i64 %i
  store float %r, ptr %pc
  %n = add nuw nsw i64 %i, 1
  %is_end = icmp eq i64 %n, )" +
         (options.rows == "1" ? "40" : "80") + R"(
  br i1 %is_end, label %done, label %loop
done:
  ret void
}
"""
)";
}

bool is_fused(const RunnableProgram& program) {
  return program.module().unoptimized_llvm_ir().find(".range.") != std::string::npos;
}

// Whether the kernel is done along with the layer; results are compared with the evaluator's.
bool is_fused(const Options& options) {
  RunnableProgram program(parse_program(text_of(options)));
  EXPECT_EQ(compare_runtimes(program, /*seed=*/7), "");
  return is_fused(program);
}

// Of a kernel whose results depend on the order of its elements, or are not all there.
bool is_fused_unseen(const Options& options) {
  return is_fused(RunnableProgram(parse_program(text_of(options))));
}

TEST(Epilogues, AnActivationInPlaceIsDoneAlong) {
  EXPECT_TRUE(is_fused({}));
  EXPECT_TRUE(is_fused({.in_place = "in_place=[1, 0, 0, 0]"}));
}

TEST(Epilogues, OneInOtherMemoryIsNot) {
  EXPECT_FALSE(is_fused({.place_of_c = "2048"}));
  EXPECT_FALSE(is_fused({.place_of_c = "2048", .in_place = "in_place=[]"}));
}

TEST(Epilogues, OneThatReadsOtherElementsIsNot) {
  EXPECT_FALSE(is_fused({.place_of_c = "2048", .read = "i64 0"}));
  EXPECT_FALSE(is_fused_unseen({.read = "i64 0"}));
}

TEST(Epilogues, OneOfSomeElementsIsNot) { EXPECT_FALSE(is_fused_unseen({.begin = "8"})); }

TEST(Epilogues, OneBehindOtherWorkIsNot) {
  const std::string type = " : tensor<f32, [1, 40], cpu>\n";
  EXPECT_FALSE(is_fused(
      {.between = "%d = allocate(offset=1024)" + type + "fill(value=1.0, out=%d)", .other = "%d"}));
}

TEST(Epilogues, OneOfSeveralRowsIsNot) { EXPECT_FALSE(is_fused({.rows = "2"})); }

}  // namespace
}  // namespace hostjit
