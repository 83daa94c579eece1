// SPDX-License-Identifier: Apache-2.0
#include "node_programs.h"

#include "support/check.h"

namespace hostjit {
namespace {

// Nodes write to the input %y where they can, so that no call allocates an output.
constexpr NodeProgram kPrograms[] = {
    {"empty", R"(
program @empty(%x: tensor<f32, [16, 16], cpu>) {
  return
})"},
    {"allocate", R"(
program @allocate(%x: tensor<f32, [16, 16], cpu>) {
  %y = allocate() : tensor<f32, [16, 16], cpu>
  copy(source=%x, out=%y)
  return %y
})"},
    {"copy", R"(
program @copy(%x: tensor<f32, [16, 16], cpu>, %y: tensor<f32, [16, 16], cpu>) {
  copy(source=%x, out=%y)
  return
})"},
    {"copy_transposed", R"(
program @copy_transposed(%x: tensor<f32, [16, 16], cpu>, %y: tensor<f32, [16, 16], cpu>) {
  %t = view(source=%x) : tensor<f32, [16, 16], strides=[1, 16], cpu>
  copy(source=%t, out=%y)
  return
})"},
    {"fill", R"(
program @fill(%y: tensor<f32, [16, 16], cpu>) {
  fill(value=1.5, out=%y)
  return
})"},
    {"constant", R"(
program @constant(%y: tensor<f32, [4], cpu>) {
  %c = constant(values=[1.0, 2.0, 3.0, 4.0]) : tensor<f32, [4], cpu>
  copy(source=%c, out=%y)
  return
})"},
    {"view", R"(
program @view(%x: tensor<f32, [16, 16], cpu>) {
  %row = view(source=%x, offset=16) : tensor<f32, [16], cpu>
  return %row
})"},
    {"size", R"(
program @size(%x: tensor<f32, [16, 16], cpu>) {
  %n = size(source=%x, dim=0) : index
  return %n
})"},
    {"index_arithmetic", R"(
program @index_arithmetic(%n: index) {
  %two = index_constant(value=2) : index
  %m = index_binary(operation=floordiv, lhs=%n, rhs=%two) : index
  return %m
})"},
    {"launch_kernel", R"(
program @launch_kernel(%x: tensor<f32, [16], cpu>, %y: tensor<f32, [16], cpu>) {
  launch_kernel(kernel="add_one", inputs=[%x], outputs=[%y])
  return
}

kernel @add_one """
define void @add_one(ptr %x, ptr %y) {
  %value = load <16 x float>, ptr %x, align 4
  %sum = fadd <16 x float> %value, splat (float 1.0)
  store <16 x float> %sum, ptr %y, align 4
  ret void
}
""")"},
    {"matmul", R"(
program @matmul(%x: tensor<f32, [1, 16], cpu>, %w: tensor<f32, [16, 16], cpu>,
                %y: tensor<f32, [1, 16], cpu>) {
  matmul(lhs=%x, rhs=%w, out=%y)
  return
})"},
    {"linear", R"(
program @linear(%x: tensor<f32, [1, 64], cpu>, %w: tensor<f32, [64, 64], cpu>,
                %b: tensor<f32, [64], cpu>, %y: tensor<f32, [1, 64], cpu>) {
  linear(input=%x, weight=%w, bias=%b, out=%y)
  return
})"},
    {"linear_b64", R"(
program @linear_b64(%x: tensor<f32, [64, 64], cpu>, %w: tensor<f32, [64, 64], cpu>,
                    %b: tensor<f32, [64], cpu>, %y: tensor<f32, [64, 64], cpu>) {
  linear(input=%x, weight=%w, bias=%b, out=%y)
  return
})"},
    {"bmm", R"(
program @bmm(%x: tensor<f32, [4, 8, 16], cpu>, %w: tensor<f32, [4, 16, 8], cpu>,
             %y: tensor<f32, [4, 8, 8], cpu>) {
  bmm(lhs=%x, rhs=%w, out=%y)
  return
})"},
    {"addmm", R"(
program @addmm(%b: tensor<f32, [16], cpu>, %x: tensor<f32, [8, 16], cpu>,
               %w: tensor<f32, [16, 16], cpu>, %y: tensor<f32, [8, 16], cpu>) {
  addmm(bias=%b, lhs=%x, rhs=%w, out=%y)
  return
})"},
    {"aten_call", R"(
program @aten_call(%x: tensor<f32, [16, 16], cpu>, %y: tensor<f32, [16], cpu>) {
  %s = aten_call(target="aten::sum.dim_IntList", inputs=[%x], arguments=[$0, [1], false, none]) : tensor<f32, [16], cpu>
  copy(source=%s, out=%y)
  return
})"},
    {"range", R"(
program @range(%x: tensor<f32, [16, 16], cpu>) {
  range_push(label="node")
  range_pop()
  return
})"},
};

}  // namespace

std::span<const NodeProgram> node_programs() { return kPrograms; }

std::string launch_chain(int64_t num_launches, Inlining inlining) {
  std::string text = "program @chain(%x: tensor<f32, [16], cpu>, %y: tensor<f32, [16], cpu>) {\n";
  for (int64_t launch = 0; launch < num_launches; ++launch) {
    text += launch % 2 == 0 ? "  launch_kernel(kernel=\"add_one\", inputs=[%x], outputs=[%y])\n"
                            : "  launch_kernel(kernel=\"add_one\", inputs=[%y], outputs=[%x])\n";
  }
  text += R"(  return
}

kernel @add_one """
define void @add_one(ptr %in, ptr %out) {
  %value = load <16 x float>, ptr %in, align 4
  %sum = fadd <16 x float> %value, splat (float 1.0)
  store <16 x float> %sum, ptr %out, align 4
)";
  if (inlining == Inlining::kForbidden) {
    // The code generator inlines kernels up to a length. This part is never reached: no input has
    // these bits.
    text += R"(  %bits = load i32, ptr %in, align 4
  %never = icmp eq i32 %bits, 2143289345
  br i1 %never, label %long, label %done
long:
)";
    for (int i = 0; i < 1000; ++i) text += "  store volatile i32 0, ptr %out, align 4\n";
    text += "  br label %done\ndone:\n";
  }
  text += "  ret void\n}\n\"\"\"";
  return text;
}

}  // namespace hostjit
