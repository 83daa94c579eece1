// SPDX-License-Identifier: Apache-2.0
// Kernels that users bring, on the null device: cubins, functions that were loaded before, numbers.
#include <ATen/ops/scalar_tensor.h>

#include <sstream>

#include "ir/printer.h"
#include "jit/cuda_fixture.h"
#include "support/check.h"
#include "support/hexadecimal.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

using cuda::NullCuda;
using cuda::NullLaunch;

const std::string kTwice = R"(
program @twice(%x: tensor<f32, [64], cuda:0>) {
  %a = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%x], in_out=[%a], grid=[2, 1, 1], block=[32, 1, 1])
  %b = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%a], in_out=[%b], grid=[2, 1, 1], block=[32, 1, 1])
  return %b
}
)";

class UserKernelTest : public CudaTest {
 protected:
  // Runs it both ways, by launches and in a graph, and expects 4 times its input.
  static void expect_four_times(RunnableProgram& program) {
    for (const bool jit : {true, true, true, false}) {
      const auto result = jit ? program.run_jit({filled(3)}) : program.run_evaluator({filled(3)});
      ASSERT_EQ(result.error, "");
      EXPECT_EQ(first(result.outputs[0]), 12);
    }
  }
  const ScopedKnobs graphs_{{.enable = "cuda_graphs_always"}};
};

TEST_F(UserKernelTest, ACubin) {
  const std::string digits = hexadecimal(NullCuda::image("twice", {8, 8}));
  const std::string text = kTwice +
                           "kernel @twice cubin(entry=\"twice\", parameters=[ptr, ptr]) \"\"\"\n" +
                           digits + "\"\"\"\n";
  RunnableProgram program = planned(text);
  expect_four_times(program);
  EXPECT_TRUE(contains(to_string(program.program()), digits));
}

TEST_F(UserKernelTest, AFunctionThatWasLoadedBefore) {
  cuda::require_context(0);
  cuda::CUmodule module = nullptr;
  cuda::CUfunction function = nullptr;
  HOSTJIT_CUDA(cuModuleLoadDataEx, &module, NullCuda::image("twice", {8, 8}).c_str(), 0, nullptr,
               nullptr);
  HOSTJIT_CUDA(cuModuleGetFunction, &function, module, "twice");
  Program program = parse_program(
      kTwice + "kernel @twice ptx(entry=\"twice\", parameters=[ptr, ptr]) \"\"\"text\"\"\"\n");
  Kernel kernel = program.kernels().at("twice");
  kernel.language = KernelLanguage::kCudaFunction;
  std::ostringstream address;
  address << "0x" << std::hex << reinterpret_cast<uint64_t>(function);
  kernel.text = address.str();
  program.remove_kernel("twice");
  program.add_kernel(kernel);
  run_pipeline(program);
  {
    RunnableProgram runnable(program);
    expect_four_times(runnable);
  }
  // It is still there when the program is gone: nobody but its owner unloads it.
  HOSTJIT_CUDA(cuModuleUnload, module);
  try {
    parse_program(to_string(program));
    ADD_FAILURE() << "a CUfunction was read from text";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "@twice is a cuda_function of the process")) << error.what();
  }
}

TEST_F(UserKernelTest, AnAddressThatIsNone) {
  for (const char* text : {"", "7f00", "0x", "0x0", "0xzz", "0x12 "}) {
    const Kernel kernel{"k", text, KernelLanguage::kCudaFunction, "k"};
    EXPECT_THROW(function_address(kernel), Error) << text;
  }
}

const std::string kNumbers = R"(
program @numbers(%x: tensor<f32, [64], cuda:0>, %n: index) {
  %half = float_constant(value=0.5) : f64
  launch_kernel(kernel="numbers", in_out=[%x], scalars=[%n, %half], grid=[1, 1, 1], block=[32, 1, 1], parameters=[0, 1, 2, 2, 1])
  launch_kernel(kernel="numbers", in_out=[%x], scalars=[%n, %half], grid=[1, 1, 1], block=[32, 1, 1], parameters=[0, 1, 2, 2, 1])
  return %x
}
)" + cuda_kernel("numbers", "ptr, i32, f32, f64, i64", {8, 4, 4, 8, 8});

TEST_F(UserKernelTest, NumbersHaveTheirTypes) {
  RunnableProgram program = planned(kNumbers);
  for (const auto& [number, bits] :
       {std::pair(int64_t{7}, "0x7"), std::pair(int64_t{-1}, "0xffffffff"),
        std::pair(int64_t{0xffffffff}, "0xffffffff")}) {
    for (const bool jit : {true, true, false}) {
      forget();
      const std::vector<at::Tensor> inputs{filled(0), at::scalar_tensor(number, at::kLong)};
      const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
      ASSERT_EQ(result.error, "");
      const std::vector<NullLaunch> launches = null_cuda_.take_launches();
      ASSERT_EQ(launches.size(), 2u);
      EXPECT_EQ(launches[0].parameters[1], bits);
      EXPECT_EQ(launches[0].parameters[2], "0x3f000000");
      EXPECT_EQ(launches[0].parameters[3], "0x3fe0000000000000");
    }
  }
}

TEST_F(UserKernelTest, ANumberThatDoesNotFitIsAnError) {
  for (const char* graphs : {"cuda_graphs_always", ""}) {
    const ScopedKnobs knobs{{.enable = graphs, .disable = *graphs == 0 ? "cuda_graphs" : ""}};
    RunnableProgram program = planned(kNumbers);
    for (const int64_t number : {int64_t{1} << 32, -(int64_t{1} << 31) - 1}) {
      for (const bool jit : {true, false}) {
        forget();
        const std::vector<at::Tensor> inputs{filled(0), at::scalar_tensor(number, at::kLong)};
        const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
        EXPECT_TRUE(contains(result.error, concat("kernel 'numbers': parameter 1 is ", number,
                                                  ", which its type does not hold")))
            << result.error;
        EXPECT_TRUE(null_cuda_.take_launches().empty());
      }
    }
  }
}

}  // namespace
}  // namespace hostjit
