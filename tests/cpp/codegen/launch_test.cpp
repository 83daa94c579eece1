// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include "ir/parser.h"
#include "runtime/counting_allocator.h"
#include "tools/runtime_comparison.h"

namespace hostjit {
namespace {

// Fails with the second error at the first element that is 7, and with the first one at an 8.
constexpr const char* kKernel = R"(
kernel @k """
define void @k(ptr %a, ptr %b, i64 %add, ptr %failure PARAMETERS) {
entry:
  br label %loop
loop:
  %i = phi i64 [BEGIN, %entry], [%n, %next]
  %pa = getelementptr inbounds i64, ptr %a, i64 %i
  %v = load i64, ptr %pa
  %is_7 = icmp eq i64 %v, 7
  br i1 %is_7, label %fail, label %more
more:
  %is_8 = icmp eq i64 %v, 8
  br i1 %is_8, label %fail, label %next
fail:
  %number = phi i64 [2, %loop], [1, %more]
  %value = getelementptr i64, ptr %failure, i64 1
  %old_number = atomicrmw xchg ptr %failure, i64 %number monotonic
  %old_value = atomicrmw xchg ptr %value, i64 %v monotonic
  ret void
next:
  %r = add i64 %v, %add
  %pb = getelementptr inbounds i64, ptr %b, i64 %i
  store i64 %r, ptr %pb
  %n = add nuw nsw i64 %i, 1
  %is_end = icmp eq i64 %n, END
  br i1 %is_end, label %done, label %loop
done:
  ret void
}
"""
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

// A launch of the kernel with `fields` added.
std::string program(const std::string& fields) {
  const bool is_range = fields.find("grid") != std::string::npos;
  std::string text = replaced(kKernel, "PARAMETERS", is_range ? ", i64 %begin, i64 %end" : "");
  text = replaced(text, "BEGIN", is_range ? "%begin" : "0");
  text = replaced(text, "END", is_range ? "%end" : "4096");
  return R"(
program @fails(%x: tensor<i64, [4096], cpu>, %add: index) {
  %a = allocate() : tensor<i64, [4096], cpu>
  copy(source=%x, out=%a)
  %b = allocate() : tensor<i64, [4096], cpu>
  launch_kernel(kernel="k", inputs=[%a], outputs=[%b], scalars=[%add], )" +
         fields + R"() loc("model.py:3")
  return %a, %b
}
)" + text;
}

constexpr const char* kErrors =
    "errors=[\"RuntimeError: there is an {} in it\", \"IndexError: {} is no place\"]";

void expect_failures(const std::string& fields) {
  CountingAllocator& allocator = CountingAllocator::install();
  RunnableProgram runnable(parse_program(program(std::string(kErrors) + fields)));
  const at::Tensor x = at::ones({4096}, at::kLong);
  const at::Tensor add = at::scalar_tensor(5, at::kLong);
  const auto expect = [&](int64_t place, int64_t value, const std::string& error) {
    at::Tensor wrong = x.clone();
    wrong[place] = value;
    const int64_t before = allocator.live_blocks();
    for (const auto& result :
         {runnable.run_jit({wrong, add}), runnable.run_evaluator({wrong, add})}) {
      EXPECT_EQ(result.error.find(error), 0u) << result.error;
      EXPECT_NE(result.error.find("in Host IR node 'launch_kernel @k' (model.py:3)"),
                std::string::npos)
          << result.error;
    }
    EXPECT_EQ(allocator.live_blocks(), before);
    for (const auto& result : {runnable.run_jit({x, add}), runnable.run_evaluator({x, add})}) {
      EXPECT_TRUE(at::equal(result.outputs.at(1), x + 5));
    }
  };
  runnable.run_jit({x, add});
  runnable.run_evaluator({x, add});
  for (const int64_t place : {0, 2000, 4095}) {
    expect(place, 7, "7 is no place");
    expect(place, 8, "there is an 8 in it");
  }
}

TEST(Launch, AKernelThatFailsEndsTheCall) { expect_failures(""); }

TEST(Launch, AKernelThatFailsOnOneThreadEndsTheCall) {
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  expect_failures(", grid=[4096, 1, 1], block=[16, 1, 1]");
  at::set_num_threads(threads);
}

TEST(Launch, AKernelWithErrorsHasAParameterForThem) {
  const auto error = [](const std::string& fields) -> std::string {
    const Program wrong = parse_program(program(fields));
    try {
      CompiledModule::compile(wrong);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("errors=[]"),
            "launch_kernel 'k': the kernel has 4 parameters, expected 2 pointers and 1 scalars");
  std::string text = program(kErrors);
  text = replaced(text, ", ptr %failure", "");
  try {
    CompiledModule::compile(parse_program(replaced(text, "i64 %add", "i64 %add, i64 %failure")));
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("kernel 'k'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hostjit
