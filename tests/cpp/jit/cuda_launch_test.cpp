// SPDX-License-Identifier: Apache-2.0
// Launches on CUDA, by compiled code and by the evaluator, on the null device.
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <thread>

#include "ir/printer.h"
#include "jit/cuda_fixture.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

using cuda::LaunchShape;
using cuda::NullCuda;
using cuda::NullLaunch;

// y = 2 * x, then twice again, by way of memory of the frame.
const std::string kChain = R"(
program @chain(%x: tensor<f32, [64], cuda:0>) {
  %a = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%x], outputs=[%a], grid=[2, 1, 1], block=[32, 1, 1])
  %b = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%a], outputs=[%b], grid=[2, 1, 1], block=[32, 1, 1])
  %c = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%b], outputs=[%c], grid=[2, 1, 1], block=[32, 1, 1]) loc("model.py:7")
  return %c
}
)" + kCudaTwice;

class CudaLaunchTest : public CudaTest {
  const ScopedKnobs launches_only_{{.disable = "cuda_graphs"}};
};

TEST_F(CudaLaunchTest, BothRuntimesLaunch) {
  RunnableProgram program = planned(kChain);
  EXPECT_TRUE(contains(to_string(program.program()), "device_arena(bytes=")) << "planned";
  for (const bool jit : {true, false}) {
    const std::vector<at::Tensor> inputs{filled(1.5F)};
    forget();
    const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(first(result.outputs[0]), 12.0F);
    const std::vector<NullLaunch> launches = null_cuda_.take_launches();
    ASSERT_EQ(launches.size(), 3u);
    EXPECT_EQ(launches[2].shape, (LaunchShape{{2, 1, 1}, {32, 1, 1}}));
    EXPECT_EQ(launches[0].parameters[1], launches[1].parameters[0]);
    EXPECT_EQ(launches[1].parameters[1], launches[2].parameters[0]);
  }
}

TEST_F(CudaLaunchTest, ACallMakesItsResultOnly) {
  RunnableProgram program = planned(kChain);
  const std::vector<at::Tensor> inputs{filled(1)};
  program.run_jit(inputs);
  forget();
  const auto result = program.run_jit(inputs);
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(std::ranges::count_if(null_cuda_.take_log(),
                                  [](const auto& line) { return line.starts_with("allocate"); }),
            1);
}

TEST_F(CudaLaunchTest, ParametersHaveTheirTypesAndOrder) {
  RunnableProgram program = planned(R"(
program @typed(%x: tensor<f32, [n], cuda:0>, %n: index, %s: f64) {
  %y = allocate() : tensor<f32, [n], cuda:0>
  launch_kernel(kernel="typed", inputs=[%x], outputs=[%y], scalars=[%n, %s], grid=[n, 2, 1],
                block=[128, 1, 1], cluster=[2, 1, 1], parameters=[2, 1, 0, 3, 3, 2, 2],
                shared_memory=100000, cooperative=true, programmatic=true)
  return %y
}
)" + cuda_kernel("typed", "i32, ptr, ptr, f32, f64, i8, i64", {4, 8, 8, 4, 8, 1, 8}));
  program.use_row({64});
  const std::vector<at::Tensor> inputs{filled(0), at::scalar_tensor(64, at::kLong),
                                       at::scalar_tensor(1.5, at::kDouble)};

  for (const bool jit : {true, false}) {
    forget();
    const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
    ASSERT_EQ(result.error, "");
    const std::vector<NullLaunch> launches = null_cuda_.take_launches();
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ(launches[0].shape,
              (LaunchShape{{64, 2, 1}, {128, 1, 1}, {2, 1, 1}, 100000, true, true}));
    const std::vector<std::string>& parameters = launches[0].parameters;
    ASSERT_EQ(parameters.size(), 7u);
    EXPECT_EQ(parameters[0], "0x40");
    EXPECT_EQ(parameters[3], "0x3fc00000");
    EXPECT_EQ(parameters[4], "0x3ff8000000000000");
    EXPECT_EQ(parameters[5], "0x40");
    EXPECT_EQ(parameters[6], "0x40");
  }
}

TEST_F(CudaLaunchTest, AnEmptyGridDoesNotRun) {
  RunnableProgram program = planned(R"(
program @empty(%x: tensor<f32, [n], cuda:0>, %n: index) {
  %y = allocate() : tensor<f32, [n], cuda:0>
  launch_kernel(kernel="twice", inputs=[%x], outputs=[%y], grid=[n, 1, 1], block=[32, 1, 1])
  return %y
}
)" + kCudaTwice);
  program.use_row({0});
  for (const bool jit : {true, false}) {
    const std::vector<at::Tensor> inputs{tensor({}), at::scalar_tensor(0, at::kLong)};
    const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
    EXPECT_EQ(result.error, "");
  }
  EXPECT_TRUE(null_cuda_.take_launches().empty());
}

TEST_F(CudaLaunchTest, WorkGoesToTheCurrentStream) {
  RunnableProgram program = planned(kChain);
  cuda::CUstream stream = nullptr;
  HOSTJIT_CUDA(cuStreamCreate, &stream, cuda::CU_STREAM_NON_BLOCKING);
  // Memory of the frame follows: of one stream after the other, nobody waits.
  for (const bool on_stream : {false, true, false, true}) {
    null_cuda_.set_current_stream(0, on_stream ? stream : nullptr);
    const std::vector<at::Tensor> inputs{filled(1)};
    forget();
    const auto result = program.run_jit(inputs);
    ASSERT_EQ(result.error, "");
    for (const NullLaunch& launch : null_cuda_.take_launches()) {
      EXPECT_EQ(launch.stream != 0, on_stream);
    }
    EXPECT_EQ(null_cuda_.take_faults(), std::vector<std::string>());
  }
  null_cuda_.set_current_stream(0, nullptr);
}

TEST_F(CudaLaunchTest, TheDeviceOfTheProgramIsCurrentForTheCall) {
  std::string text = kChain;
  for (size_t at; (at = text.find("cuda:0")) != std::string::npos;) text.replace(at, 6, "cuda:1");
  RunnableProgram program = planned(text);
  const std::vector<at::Tensor> inputs{filled(1, 1)};
  for (int call = 0; call < 2; ++call) {
    forget();
    const auto result = program.run_jit(inputs);
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(result.outputs[0].device().index(), 1);
    for (const NullLaunch& launch : null_cuda_.take_launches()) EXPECT_EQ(launch.device, 1);
    EXPECT_EQ(cuda::current_device(), 0);
  }
}

TEST_F(CudaLaunchTest, ThreadsWithoutAContextGetOne) {
  RunnableProgram program = planned(kChain);
  std::string error = "not run";
  std::thread([&] { error = program.run_jit({filled(1)}).error; }).join();
  EXPECT_EQ(error, "");
}

TEST_F(CudaLaunchTest, AFailedLaunchIsReportedWithItsNode) {
  RunnableProgram program = planned(kChain);
  const std::vector<at::Tensor> inputs{filled(1)};
  program.run_jit(inputs);
  const int64_t before = null_cuda_.bytes_allocated();
  for (const bool jit : {true, false}) {
    null_cuda_.fail("cuLaunchKernelEx", cuda::CUDA_ERROR_ILLEGAL_ADDRESS, /*after=*/2);
    const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
    EXPECT_TRUE(contains(result.error, "CUDA error: an illegal memory access was encountered"))
        << result.error;
    EXPECT_TRUE(contains(result.error, "kernel 'twice'")) << result.error;
    EXPECT_TRUE(contains(result.error, "'launch_kernel @twice' (model.py:7)")) << result.error;
    EXPECT_EQ(null_cuda_.bytes_allocated(), before);
  }
  EXPECT_EQ(program.run_jit(inputs).error, "");
}

TEST_F(CudaLaunchTest, KernelsThatDoNotFitAreRefusedWhenLoaded) {
  const auto error_of = [&](const std::string& image) {
    return planned(R"(
program @unfit(%x: tensor<f32, [64], cuda:0>) {
  launch_kernel(kernel="k", in_out=[%x], grid=[1, 1, 1], block=[1, 1, 1])
  return %x
}
kernel @k ptx(entry="k", parameters=[ptr]) """)" +
                   image + "\"\"\"\n")
        .run_jit({filled(0)})
        .error;
  };
  EXPECT_TRUE(contains(error_of(NullCuda::image("k", {4})),
                       "kernel 'k': parameter 0 of 'k' has 4 bytes, expected 8"));
  EXPECT_TRUE(contains(error_of(NullCuda::image("k", {})), "'k' has 0 parameters, expected 1"));
  EXPECT_TRUE(contains(error_of(NullCuda::image("k", {8, 8})), "'k' has more than 1 parameters"));
  EXPECT_TRUE(contains(error_of(NullCuda::image("j", {8})), "its code has no 'k'"));
  EXPECT_TRUE(contains(error_of("nonsense"), "kernel 'k': cuModuleLoadDataEx"));
}

TEST_F(CudaLaunchTest, WhatInitMadeIsReadByAnyStream) {
  RunnableProgram program = planned(R"(
program @hoisted(%x: tensor<f32, [64], cuda:0>) {
  %a = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="ones", outputs=[%a], grid=[2, 1, 1], block=[32, 1, 1])
  %b = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%a], outputs=[%b], grid=[2, 1, 1], block=[32, 1, 1])
  return %b
}
)" + kCudaTwice + cuda_kernel("ones", "ptr", {8}));
  null_cuda_.emulate("ones", [](const LaunchShape&, void** parameters) {
    std::fill_n(*static_cast<float**>(parameters[0]), 64, 1.0F);
  });
  cuda::CUstream stream = nullptr;
  HOSTJIT_CUDA(cuStreamCreate, &stream, cuda::CU_STREAM_NON_BLOCKING);
  const std::vector<at::Tensor> inputs{filled(0)};
  EXPECT_EQ(first(program.run_jit(inputs).outputs[0]), 2.0F);
  null_cuda_.set_current_stream(0, stream);
  forget();
  EXPECT_EQ(first(program.run_jit(inputs).outputs[0]), 2.0F);
  EXPECT_EQ(null_cuda_.take_launches().size(), 1u);
  null_cuda_.set_current_stream(0, nullptr);
}

}  // namespace
}  // namespace hostjit
