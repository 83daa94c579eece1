// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <thread>

#include "ir/parser.h"
#include "runtime/counting_allocator.h"
#include "tools/runtime_comparison.h"

namespace hostjit {
namespace {

// A loop over 64 floats from %a to %b, `body` makes %r of %v.
std::string kernel(const std::string& name, const std::string& body,
                   const std::string& declarations = "") {
  return "kernel @" + name + " \"\"\"\n" + declarations + "define void @" + name +
         "(ptr %a, ptr %b) {\n"
         "entry:\n  br label %loop\n"
         "loop:\n  %i = phi i64 [0, %entry], [%n, %loop]\n"
         "  %pa = getelementptr inbounds float, ptr %a, i64 %i\n"
         "  %pb = getelementptr inbounds float, ptr %b, i64 %i\n"
         "  %v = load float, ptr %pa\n" +
         body +
         "  store float %r, ptr %pb\n"
         "  %n = add nuw nsw i64 %i, 1\n  %more = icmp ult i64 %n, 64\n"
         "  br i1 %more, label %loop, label %done\n"
         "done:\n  ret void\n}\n\"\"\"\n";
}

constexpr const char* kLaunch = R"(
program @one(%x: tensor<f32, [64], cpu>) {
  %y = allocate() : tensor<f32, [64], cpu>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%y])
  return %y
}
)";

std::string compile_error(const std::string& text) {
  const Program program = parse_program(text);
  try {
    CompiledModule::compile(program);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CompiledModule, InlinesSmallKernels) {
  const auto module =
      CompiledModule::compile(parse_program(kLaunch + kernel("k", "  %r = fadd float %v, 1.0\n")));
  const std::string text = module->llvm_ir();
  EXPECT_EQ(text.find("one.kernel.k("), std::string::npos) << text;
  EXPECT_NE(text.find("fadd <"), std::string::npos) << text;
  EXPECT_NE(module->unoptimized_llvm_ir().find("call void @one.kernel.k("), std::string::npos);
  EXPECT_NE(module->assembly().find("one.main"), std::string::npos);
}

TEST(CompiledModule, CallsSleefOnWholeVectors) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "needs AVX2";
  const auto module = CompiledModule::compile(
      parse_program(kLaunch + kernel("k", "  %r = call float @hostjit_exp_f32(float %v)\n",
                                     "declare float @hostjit_exp_f32(float)\n")));
  const std::string text = module->llvm_ir();
  // As wide as HostTarget has them: Intel's CPUs before Ice Lake keep to 256 bits.
  const bool is_wide = __builtin_cpu_supports("avx512vbmi2");
  EXPECT_NE(text.find(is_wide ? "call <16 x float> @Sleef_expf16_u10"
                              : "call <8 x float> @Sleef_expf8_u10"),
            std::string::npos)
      << text;
}

TEST(CompiledModule, ResultsOfMathDoNotDependOnThePosition) {
  // 64 of the elements go through whole vectors, the one of the second kernel does not.
  RunnableProgram vector(
      parse_program(kLaunch + kernel("k", "  %r = call float @hostjit_tanh_f32(float %v)\n",
                                     "declare float @hostjit_tanh_f32(float)\n")));
  RunnableProgram scalar(parse_program(R"(
program @single(%x: tensor<f32, [1], cpu>) {
  %y = allocate() : tensor<f32, [1], cpu>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%y])
  return %y
}
kernel @k """
declare float @hostjit_tanh_f32(float)
define void @k(ptr %a, ptr %b) {
  %v = load float, ptr %a
  %r = call float @hostjit_tanh_f32(float %v)
  store float %r, ptr %b
  ret void
}
""")"));
  const at::Tensor x = at::randn({64});
  const at::Tensor y = vector.run_jit({x}).outputs.at(0);
  for (int64_t i = 0; i < 64; ++i) {
    const at::Tensor one = scalar.run_jit({x.slice(0, i, i + 1).clone()}).outputs.at(0);
    EXPECT_EQ(one.item<float>(), y[i].item<float>());
  }
}

TEST(CompiledModule, NamesTheKernelWhoseTextIsMalformed) {
  const std::string error = compile_error(kLaunch + kernel("k", "  %r = fadd float %v, %w\n"));
  EXPECT_EQ(error.find("kernel 'k': line 9, column "), 0u) << error;
  EXPECT_NE(error.find("use of undefined value '%w'"), std::string::npos) << error;
}

TEST(CompiledModule, NamesTheKernelThatIsNotDefined) {
  const std::string text = std::string(kLaunch) +
                           "kernel @k \"\"\"\ndefine void @other() {\n"
                           "  ret void\n}\n\"\"\"\n";
  EXPECT_EQ(compile_error(text), "kernel 'k': the text does not define @k");
}

TEST(CompiledModule, NamesTheKernelWhoseLibraryIsMissing) {
  const std::string text = concat(kLaunch, "kernel @k shared_library(entry=\"k\") \"no/such.so\"");
  EXPECT_EQ(compile_error(text),
            "kernel 'k': no/such.so: cannot open shared object file: No such file or directory");
}

TEST(CompiledModule, NamesTheKernelThatIsNotInItsLibrary) {
  const std::string text =
      concat(kLaunch, "kernel @k shared_library(entry=\"no k\") \"libc.so.6\"");
  const std::string error = compile_error(text);
  EXPECT_EQ(error.find("kernel 'k': "), 0u) << error;
  EXPECT_NE(error.find("undefined symbol: no k"), std::string::npos) << error;
}

TEST(CompiledModule, RefusesCallsOutOfTheKernel) {
  const std::string text = kLaunch + kernel("k", "  %r = call float @system(float %v)\n",
                                            "declare float @system(float)\n");
  EXPECT_EQ(compile_error(text),
            "kernel 'k': calls @system, which is neither defined in its text "
            "nor a function of vector math");
}

TEST(CompiledModule, RefusesWrongDeclarationsOfVectorMath) {
  const std::string text = kLaunch + kernel("k",
                                            "  %d = fpext float %v to double\n"
                                            "  %e = call double @hostjit_exp_f32(double %d)\n"
                                            "  %r = fptrunc double %e to float\n",
                                            "declare double @hostjit_exp_f32(double)\n");
  EXPECT_EQ(compile_error(text),
            "kernel 'k': declares @hostjit_exp_f32 as double (double), "
            "expected 1 parameters and a result of float");
}

TEST(CompiledModule, RefusesParametersThatDoNotFitTheLaunch) {
  const std::string text = R"(
program @one(%x: tensor<f32, [64], cpu>, %f: f64) {
  %y = allocate() : tensor<f32, [64], cpu>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%y], scalars=[%f])
  return %y
}
kernel @k """
define void @k(ptr %a, ptr %b, PARAMETER) { ret void }
""")";
  const auto with = [&](const std::string& parameter) {
    std::string changed = text;
    return compile_error(changed.replace(changed.find("PARAMETER"), 9, parameter));
  };
  EXPECT_EQ(with("double %f"), "no error");
  EXPECT_EQ(with("i64 %f"), "launch_kernel 'k': parameter 2 has type i64, expected double");
  EXPECT_EQ(with("double %f, double %g"),
            "launch_kernel 'k': the kernel has 4 parameters, expected 2 pointers and 1 scalars");
}

TEST(CompiledModule, KernelsMayHaveFunctionsOfTheSameName) {
  const std::string helper =
      "define float @more(float %x) {\n  %y = fadd float %x, AMOUNT\n  ret float %y\n}\n";
  const auto with = [&](const std::string& amount) {
    std::string changed = helper;
    return changed.replace(changed.find("AMOUNT"), 6, amount);
  };
  const std::string call = "  %r = call float @more(float %v)\n";
  RunnableProgram program(parse_program(R"(
program @two(%x: tensor<f32, [64], cpu>) {
  %y = allocate() : tensor<f32, [64], cpu>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%y])
  %z = allocate() : tensor<f32, [64], cpu>
  launch_kernel(kernel="l", inputs=[%y], outputs=[%z])
  return %z
}
)" + kernel("k", call, with("1.0")) + kernel("l", call, with("2.0"))));
  EXPECT_EQ(program.run_jit({at::zeros({64})}).outputs.at(0)[63].item<float>(), 3.0f);
  EXPECT_EQ(compare_runtimes(program, /*seed=*/1), "");
}

TEST(CompiledModule, KernelsOfEqualContentAreOneFunction) {
  const std::string one_more = "  %r = fadd float %v, 1.0\n";
  RunnableProgram program(parse_program(R"(
program @two(%x: tensor<f32, [64], cpu>) {
  %y = allocate() : tensor<f32, [64], cpu>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%y])
  %z = allocate() : tensor<f32, [64], cpu>
  launch_kernel(kernel="k2", inputs=[%y], outputs=[%z])
  %w = allocate() : tensor<f32, [64], cpu>
  launch_kernel(kernel="l", inputs=[%z], outputs=[%w])
  return %w
}
)" + kernel("k", one_more) + kernel("k2", one_more) +
                                        kernel("l", "  %r = fadd float %v, 2.0\n")));
  const std::string text = program.module().unoptimized_llvm_ir();
  EXPECT_NE(text.find("define internal void @two.kernel.k("), std::string::npos) << text;
  EXPECT_EQ(text.find("@two.kernel.k2("), std::string::npos) << text;
  EXPECT_NE(text.find("define internal void @two.kernel.l("), std::string::npos) << text;
  EXPECT_EQ(program.run_jit({at::zeros({64})}).outputs.at(0)[63].item<float>(), 4.0f);
  EXPECT_EQ(compare_runtimes(program, /*seed=*/1), "");
}

TEST(CompiledModule, FailedCallReleasesWhatItMade) {
  CountingAllocator& allocator = CountingAllocator::install();
  RunnableProgram program(parse_program(R"(
program @fails(%x: tensor<f32, [4], cpu>, %i: tensor<i64, [2], cpu>) {
  %a = allocate() : tensor<f32, [4], cpu>
  copy(source=%x, out=%a)
  %v = view(source=%a, offset=1) : tensor<f32, [3], cpu>
  %b = aten_call(target="aten::neg", inputs=[%v], arguments=[$0]) : tensor<f32, [3], cpu>
  %c = aten_call(target="aten::index_select", inputs=[%b, %i], arguments=[$0, 0, $1]) : tensor<f32, [2], cpu> loc("model.py:12")
  return %a, %v, %c
}
)"));
  const at::Tensor x = at::randn({4});
  const at::Tensor good = at::zeros({2}, at::kLong);
  const at::Tensor bad = at::full({2}, 9, at::kLong);
  program.run_jit({x, good});
  const int64_t before = allocator.live_blocks();
  for (int i = 0; i < 3; ++i) {
    const RunnableProgram::Result result = program.run_jit({x, bad});
    EXPECT_NE(result.error.find("index out of range"), std::string::npos) << result.error;
    EXPECT_NE(result.error.find("in Host IR node 'aten_call aten::index_select' (model.py:12)"),
              std::string::npos)
        << result.error;
    EXPECT_EQ(allocator.live_blocks(), before);
    EXPECT_EQ(program.run_jit({x, good}).outputs.size(), 3u);
    EXPECT_EQ(allocator.live_blocks(), before);
  }
}

TEST(CompiledModule, WritesToInputsMoveTheirVersion) {
  RunnableProgram program(parse_program(R"(
program @write(%x: tensor<f32, [4], cpu>, %y: tensor<f32, [4], cpu>) {
  copy(source=%x, out=%y)
  return %y
}
)"));
  const at::Tensor y = at::zeros({4});
  const int64_t before = y._version();
  program.run_jit({at::ones({4}), y});
  EXPECT_EQ(y._version(), before + 1);
  EXPECT_EQ(y.sum().item<float>(), 4.0f);
}

TEST(CompiledModule, CompilesAndRunsOnSeveralThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 3; ++round) {
        RunnableProgram program(parse_program(
            kLaunch + kernel("k", "  %r = fadd float %v, " + std::to_string(i) + ".0\n")));
        const at::Tensor y = program.run_jit({at::ones({64})}).outputs.at(0);
        EXPECT_EQ(y[5].item<float>(), 1.0f + static_cast<float>(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CompiledModule, LongProgramsCallWhatTheyDoNotInline) {
  std::string text = "program @chain(%x: tensor<f32, [64], cpu>) {\n";
  std::string last = "x";
  for (int i = 0; i < 600; ++i) {
    const std::string next = "v" + std::to_string(i);
    text += "  %" + next +
            " = allocate() : tensor<f32, [64], cpu>\n  launch_kernel(kernel=\"k\", "
            "inputs=[%" +
            last + "], outputs=[%" + next + "])\n";
    last = next;
  }
  text += "  return %" + last + "\n}\n";
  RunnableProgram program(parse_program(text + kernel("k", "  %r = fadd float %v, 1.0\n")));
  EXPECT_EQ(program.run_jit({at::zeros({64})}).outputs.at(0)[7].item<float>(), 600.0f);
}

}  // namespace
}  // namespace hostjit
