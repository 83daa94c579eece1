// SPDX-License-Identifier: Apache-2.0
// What profilers see of programs on CUDA, on the null device.
#include <torch/csrc/profiler/stubs/base.h>

#include "codegen/codegen.h"
#include "jit/cuda_fixture.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

const std::string kProgram = R"(
program @profiled(%x: tensor<f32, [64], cuda:0>) {
  range_push(label="both at model.py:3")
  %a = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%x], outputs=[%a], grid=[2, 1, 1], block=[32, 1, 1])
  %side = pool_stream() : stream
  %b = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%a], outputs=[%b], grid=[2, 1, 1], block=[32, 1, 1], stream=%side)
  range_pop()
  return %b
}
)" + kCudaTwice;

// PyTorch's way to NVTX, which CPU builds lack.
struct RecordedRanges final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex*, torch::profiler::impl::ProfilerVoidEventStub*,
              int64_t*) const override {}
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub*,
                const torch::profiler::impl::ProfilerVoidEventStub*) const override {
    return 0;
  }
  void mark(const char*) const override {}
  void rangePush(const char* name) const override { seen.push_back(concat("push ", name)); }
  void rangePop() const override { seen.emplace_back("pop"); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}

  mutable std::vector<std::string> seen;
};

class CudaProfileTest : public CudaTest {};

TEST_F(CudaProfileTest, TheDeviceTimeOfEachNodeIsRead) {
  Program program = parse_program(kProgram);
  run_pipeline(program);
  const auto module = CompiledModule::compile(program, /*time_nodes=*/true);
  ProgramState state(module->layout(), module->init());
  for (int call = 0; call < 2; ++call) {
    at::Tensor x = filled(1);
    TensorArg input{x.unsafeGetTensorImpl()->mutable_data(), x.sizes().data(), x.strides().data(),
                    &x};
    Frame* frame = state.take();
    void* inputs[] = {frame, &input};
    void* output = nullptr;
    ASSERT_EQ(module->main()(0, inputs + 1, &output), 0);
    c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim(
        static_cast<at::TensorImpl*>(output));
    state.give_back(frame);
    const std::span<int64_t> times = module->node_times();
    ASSERT_EQ(times.size(), num_node_times(program));
    size_t i = num_host_times(program);
    for (const auto& op : program.body()) {
      EXPECT_EQ(times[i++], op->is<LaunchKernel>() ? 1'000'000 : 0) << op->name();
    }
  }
}

TEST_F(CudaProfileTest, RangesReachNvtxWhereTheKnobSaysSo) {
  static RecordedRanges ranges;
  torch::profiler::impl::registerCUDAMethods(&ranges);
  for (const bool nvtx : {true, false}) {
    const ScopedKnobs knobs{{.enable = nvtx ? "nvtx" : "", .disable = nvtx ? "" : "nvtx"}};
    RunnableProgram program = planned(kProgram);
    for (const bool jit : {true, false}) {
      ranges.seen.clear();
      const std::vector<at::Tensor> inputs{filled(1)};
      EXPECT_EQ((jit ? program.run_jit(inputs) : program.run_evaluator(inputs)).error, "");
      EXPECT_EQ(ranges.seen, nvtx ? (std::vector<std::string>{"push both at model.py:3", "pop"})
                                  : std::vector<std::string>());
    }
    null_cuda_.fail("cuLaunchKernelEx", cuda::CUDA_ERROR_INVALID_VALUE);
    ranges.seen.clear();
    EXPECT_NE(program.run_jit({filled(1)}).error, "");
    EXPECT_EQ(ranges.seen.size(), nvtx ? 2u : 0u) << "closed by the failure";
  }
}

}  // namespace
}  // namespace hostjit
