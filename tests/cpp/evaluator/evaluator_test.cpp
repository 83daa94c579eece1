// SPDX-License-Identifier: Apache-2.0
#include "evaluator/evaluator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <thread>

#include "evaluated.h"
#include "runtime/counting_allocator.h"
#include "support/check.h"

namespace hostjit {
namespace {

// out[i] = x[i] * scale for 6 elements.
void scale_6(void* const* arguments) {
  const auto* x = static_cast<const float*>(arguments[0]);
  auto* out = static_cast<float*>(arguments[1]);
  const auto scale = *static_cast<const int64_t*>(arguments[2]);
  for (int i = 0; i < 6; ++i) out[i] = x[i] * static_cast<float>(scale);
}

TEST(Evaluator, MatmulKernelViewAndAtenCall) {
  Evaluated program(R"(
program @mixed(%x: tensor<f32, [2, 4], cpu>, %w: tensor<f32, [4, 3], cpu>) {
  %h = allocate() : tensor<f32, [2, 3], cpu>
  matmul(lhs=%x, rhs=%w, out=%h)
  %n = size(source=%x, dim=1) : index
  %k = allocate() : tensor<f32, [2, 3], cpu>
  launch_kernel(kernel="scale", inputs=[%h], outputs=[%k], scalars=[%n])
  deallocate(buffer=%h)
  %v = view(source=%k, offset=1) : tensor<f32, [2, 2], strides=[3, 1], cpu>
  %s = aten_call(target="aten::sum.dim_IntList", inputs=[%v], arguments=[$0, [1], false, none]) : tensor<f32, [2], cpu>
  return %s
}
kernel @scale """define void @scale(ptr %x, ptr %out, i64 %n) { ret void }"""
)",
                    {{"scale", &scale_6}});
  const at::Tensor x = at::randn({2, 4});
  const at::Tensor w = at::randn({4, 3});
  const at::Tensor expected = at::matmul(x, w).mul(4).slice(1, 1).sum(1);
  EXPECT_TRUE(at::allclose(program.call({x, w}), expected));
}

TEST(Evaluator, MathMemoryAndConstants) {
  Evaluated program(R"(
program @math(%x: tensor<f64, [2, 3, 4], cpu>, %w: tensor<f64, [5, 4], cpu>, %b: tensor<f64, [5], cpu>) {
  init {
    %c = constant(values=[1.5, -2.0, inf, 0.5]) : tensor<f64, [4], cpu>
    %d = allocate() : tensor<f64, [4], cpu>
    copy(source=%c, out=%d)
  }
  %y = allocate() : tensor<f64, [2, 3, 4], cpu>
  copy(source=%d, out=%y)
  %z = allocate() : tensor<f64, [2, 3, 5], cpu>
  linear(input=%x, weight=%w, bias=%b, out=%z)
  %t = view(source=%z) : tensor<f64, [2, 5, 3], strides=[15, 1, 5], cpu>
  %m = allocate() : tensor<f64, [2, 5, 4], cpu>
  bmm(lhs=%t, rhs=%x, out=%m)
  %first = view(source=%m) : tensor<f64, [5, 4], cpu>
  %second = view(source=%w) : tensor<f64, [4, 5], strides=[1, 4], cpu>
  %f = allocate() : tensor<f64, [1], cpu>
  fill(value=0.25, out=%f)
  %out = allocate() : tensor<f64, [5, 5], cpu>
  addmm(bias=%f, lhs=%first, rhs=%second, beta=2.0, alpha=0.5, out=%out)
  return %out, %y
}
)");
  const at::Tensor x = at::randn({2, 3, 4}, at::kDouble);
  const at::Tensor w = at::randn({5, 4}, at::kDouble);
  const at::Tensor b = at::randn({5}, at::kDouble);
  const at::Tensor c = at::tensor({1.5, -2.0, INFINITY, 0.5}, at::kDouble);
  const at::Tensor z = at::linear(x, w, b);
  const at::Tensor expected =
      at::addmm(at::full({1}, 0.25, at::kDouble), at::bmm(z.mT(), x)[0], w.t(), 2, 0.5);
  for (int i = 0; i < 2; ++i) {
    std::vector<at::Tensor> outputs;
    for (void* output : program.raw_call({x, w, b})) outputs.push_back(take_tensor(output));
    EXPECT_TRUE(at::allclose(outputs[0], expected));
    EXPECT_TRUE(at::equal(outputs[1], c.expand({2, 3, 4})));
    outputs[1].zero_();
  }
}

TEST(Evaluator, ConstantsOfEachKind) {
  const auto constant = [](const std::string& values, const std::string& type) {
    return Evaluated("program @c() {\n  %c = constant(values=" + values + ") : tensor<" + type +
                     ", cpu>\n  %y = allocate() : tensor<" + type +
                     ", cpu>\n  copy(source=%c, out=%y)\n  return %y\n}\n")
        .call({});
  };
  EXPECT_TRUE(at::equal(constant("[true, false]", "bool, [2]"), at::tensor({1, 0}).to(at::kBool)));
  EXPECT_TRUE(at::equal(constant("[9007199254740993]", "i64, []"),
                        at::scalar_tensor(int64_t{9007199254740993}, at::kLong)));
  EXPECT_TRUE(at::equal(constant("[1, 2.5]", "bf16, [2, 1]"),
                        at::tensor({1.0f, 2.5f}).to(at::kBFloat16).view({2, 1})));
  EXPECT_TRUE(at::equal(constant("[complex(1.0, -2.0)]", "c64, [1]"),
                        at::full({1}, c10::complex<double>(1, -2), at::kComplexFloat)));
  EXPECT_TRUE(at::equal(constant("[]", "f32, [0, 3]"), at::empty({0, 3})));
}

TEST(Evaluator, IntegerMatrices) {
  Evaluated program(R"(
program @integers(%x: tensor<i64, [2, 2], cpu>) {
  %out = allocate() : tensor<i64, [2, 2], cpu>
  addmm(bias=%x, lhs=%x, rhs=%x, beta=2.0, alpha=3.0, out=%out)
  return %out
}
)");
  const at::Tensor x = at::tensor({1, 2, 3, 4}, at::kLong).view({2, 2});
  EXPECT_TRUE(at::equal(program.call({x}), at::addmm(x, x, x, 2, 3)));
}

TEST(Evaluator, OutputThatIsAnInputOrAViewOfOne) {
  Evaluated identity("program @i(%x: tensor<f32, [2, 3], cpu>) {\n  return %x\n}\n");
  const at::Tensor x = at::randn({2, 3});
  EXPECT_TRUE(identity.call({x}).is_same(x));
  EXPECT_EQ(x.use_count(), 1u);
  Evaluated row(
      "program @v(%x: tensor<f32, [2, 3], cpu>) {\n"
      "  %v = view(source=%x, offset=3) : tensor<f32, [3], cpu>\n  return %v\n}\n");
  const at::Tensor view = row.call({x});
  EXPECT_TRUE(at::equal(view, x[1]));
  EXPECT_TRUE(view._base().is_same(x));
}

const char* const kQuotient = R"(
program @quotient(%n: index, %d: index) {
  %q = index_binary(operation=floordiv, lhs=%n, rhs=%d) : index
  %two = index_constant(value=2) : index
  %r = index_binary(operation=mul, lhs=%q, rhs=%two) : index
  return %r
}
)";

TEST(Evaluator, IndexArithmetic) {
  Evaluated program(kQuotient);
  EXPECT_EQ(std::bit_cast<int64_t>(program.raw_call({}, {-7, 2}).at(0)), -8);
}

TEST(Evaluator, FloatingPointScalars) {
  Evaluated program(R"(
program @scaled(%x: tensor<f32, [3], cpu>, %s: f64) {
  %r = aten_call(target="aten::mul.Scalar", inputs=[%x, %s], arguments=[$0, $1]) : tensor<f32, [3], cpu>
  return %r, %s
}
)");
  const at::Tensor x = at::randn({3});
  const auto outputs = program.raw_call({x}, {std::bit_cast<int64_t>(0.5)});
  EXPECT_TRUE(at::equal(take_tensor(outputs[0]), x * 0.5));
  EXPECT_EQ(std::bit_cast<double>(outputs[1]), 0.5);
}

TEST(Evaluator, DivisionByZeroIsTheErrorOfApply) {
  Evaluated program(kQuotient);
  EXPECT_EQ(program.error({}, {7, 0}), "index_binary: floordiv by zero");
  EXPECT_EQ(program.note(), "in Host IR node 'index_binary'");
  EXPECT_EQ(std::bit_cast<int64_t>(program.raw_call({}, {7, 2}).at(0)), 6);
}

TEST(Evaluator, OperatorErrorsNameTheNode) {
  Evaluated program(R"(
program @index(%x: tensor<f32, [3], cpu>, %i: tensor<i64, [2], cpu>) {
  %y = allocate() : tensor<f32, [3], cpu>
  copy(source=%x, out=%y)
  %r = aten_call(target="aten::index_select", inputs=[%y, %i], arguments=[$0, 0, $1]) : tensor<f32, [2], cpu>
  return %r
}
)");
  const at::Tensor x = at::randn({3});
  const at::Tensor wrong = at::tensor({0, 9}, at::kLong);
  const CountingAllocator& memory = CountingAllocator::install();
  const int64_t blocks = memory.live_blocks();
  EXPECT_EQ(program.error({x, wrong}), "index out of range in self");
  EXPECT_EQ(memory.live_blocks(), blocks);
  EXPECT_EQ(program.note(), "in Host IR node 'aten_call'");
  EXPECT_EQ(x.use_count(), 1u);
  EXPECT_EQ(wrong.use_count(), 1u);
  EXPECT_TRUE(at::equal(program.call({x, at::tensor({2, 0}, at::kLong)}), at::stack({x[2], x[0]})));
}

TEST(Evaluator, UnknownKernelAndOperatorAreRefusedWhenMade) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      Evaluated program(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(R"(
program @k(%x: tensor<f32, [3], cpu>) {
  %y = allocate() : tensor<f32, [3], cpu>
  launch_kernel(kernel="k0", inputs=[%x], outputs=[%y])
  return %y
}
kernel @k0 """define void @k0(ptr %x, ptr %y) { ret void }"""
)"),
            "launch_kernel: no kernel 'k0' was given to the evaluator");
  EXPECT_EQ(error(R"(
program @a(%x: tensor<f32, [3], cpu>) {
  %y = aten_call(target="aten::no_such", inputs=[%x], arguments=[$0]) : tensor<f32, [3], cpu>
  return %y
}
)"),
            "aten_call 'aten::no_such': PyTorch has no such operator");
}

TEST(Evaluator, CallsFromSeveralThreads) {
  Evaluated program(R"(
program @threads(%x: tensor<f32, [8], cpu>) {
  init {
    %c = constant(values=[2.0]) : tensor<f32, [1], cpu>
  }
  %r = aten_call(target="aten::mul.Tensor", inputs=[%x, %c], arguments=[$0, $1]) : tensor<f32, [8], cpu>
  return %r
}
)");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      const at::Tensor x = at::full({8}, id);
      for (int i = 0; i < 200; ++i) wrong += !at::equal(program.call({x}), x * 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hostjit
