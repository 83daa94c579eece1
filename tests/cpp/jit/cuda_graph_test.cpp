// SPDX-License-Identifier: Apache-2.0
// Runs of launches as CUDA graphs, on the null device.
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <set>

#include "jit/cuda_fixture.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

using cuda::NullLaunch;

// 2x and 4x, then their sum by way of 8x: two branches that meet.
const std::string kDiamond = R"(
program @diamond(%x: tensor<f32, [64], cuda:0>) {
  %a = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%x], outputs=[%a], grid=[2, 1, 1], block=[32, 1, 1])
  %b = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%a], outputs=[%b], grid=[2, 1, 1], block=[32, 1, 1])
  %c = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%a], outputs=[%c], grid=[2, 1, 1], block=[32, 1, 1])
  %d = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="sum", inputs=[%b, %c], outputs=[%d], grid=[2, 1, 1], block=[32, 1, 1])
  return %d
}
)" + kCudaTwice + kCudaSum;

class CudaGraphTest : public CudaTest {
 protected:
  const ScopedKnobs always_{{.enable = "cuda_graphs_always"}};
};

TEST_F(CudaGraphTest, NodesWaitForWhatTheyRead) {
  RunnableProgram program = planned(kDiamond);
  const std::vector<GraphSpec>& graphs = program.module().layout().graphs;
  ASSERT_EQ(graphs.size(), 1u);
  std::vector<std::vector<int64_t>> dependencies;
  for (const GraphNodeSpec& node : graphs[0].nodes) dependencies.push_back(node.dependencies);
  const std::vector<std::vector<int64_t>> expected = {{}, {0}, {0}, {2, 1}};
  EXPECT_EQ(dependencies, expected);
}

TEST_F(CudaGraphTest, MemoryThatIsUsedAgainIsWaitedFor) {
  // %c has the memory of %a: it waits for the launch that reads %a.
  RunnableProgram program = planned(R"(
program @again(%x: tensor<f32, [64], cuda:0>) {
  %a = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%x], outputs=[%a], grid=[2, 1, 1], block=[32, 1, 1])
  %b = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%a], outputs=[%b], grid=[2, 1, 1], block=[32, 1, 1])
  %c = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="twice", inputs=[%x], outputs=[%c], grid=[2, 1, 1], block=[32, 1, 1])
  %d = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="sum", inputs=[%b, %c], outputs=[%d], grid=[2, 1, 1], block=[32, 1, 1])
  return %d
}
)" + kCudaTwice + kCudaSum);
  const GraphSpec& graph = program.module().layout().graphs.at(0);
  EXPECT_EQ(graph.nodes[2].dependencies, std::vector<int64_t>({1}));
  for (int call = 0; call < 4; ++call) {
    const auto result = program.run_jit({filled(1)});
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(first(result.outputs[0]), 6);
  }
}

TEST_F(CudaGraphTest, OnlyNodesThatChangedAreSet) {
  RunnableProgram program = planned(kDiamond);
  at::Tensor x = filled(1);
  at::Tensor other = filled(10);
  program.run_jit({x});
  EXPECT_TRUE(logged("launch a graph").empty()) << "the first call";
  EXPECT_EQ(first(program.run_jit({x}).outputs[0]), 8);
  EXPECT_EQ(logged("instantiate"), std::vector<std::string>({"instantiate a graph of 4 nodes"}));
  const auto kept = program.run_jit({x});  // as long as it lives, results are elsewhere
  forget();
  EXPECT_EQ(first(program.run_jit({x}).outputs[0]), 8);
  EXPECT_EQ(logged("set node"), std::vector<std::string>({"set node 3 to sum"}));
  EXPECT_EQ(first(program.run_jit({other}).outputs[0]), 80);
  EXPECT_EQ(logged("set node").front(), "set node 0 to twice");
  EXPECT_EQ(first(kept.outputs[0]), 8) << "no result is overwritten";
  forget();
  program.run_jit({other});
  EXPECT_EQ(logged("launch a graph"),
            std::vector<std::string>({"launch a graph of 4 nodes on stream 0"}));
}

TEST_F(CudaGraphTest, NumbersOfTheHostAreThoseOfTheMoment) {
  null_cuda_.emulate("scale", [](const cuda::LaunchShape& shape, void** parameters) {
    const float* from = *static_cast<float**>(parameters[0]);
    float* to = *static_cast<float**>(parameters[1]);
    const auto number = static_cast<float>(*static_cast<double*>(parameters[2]));
    const uint32_t count = shape.grid[0] * shape.block[0];
    for (uint32_t i = 0; i < count; ++i) to[i] = number * from[i];
  });
  null_cuda_.declare_reads("scale", {0});
  // Kernels of the CPU count on between the launches, which are one graph.
  RunnableProgram program = planned(R"(
program @scaled(%x: tensor<f32, [64], cuda:0>, %n: tensor<f64, [], cpu>) {
  launch_kernel(kernel="count", in_out=[%n])
  %a = item(source=%n) : f64
  %y = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="scale", inputs=[%x], outputs=[%y], scalars=[%a], grid=[2, 1, 1], block=[32, 1, 1])
  launch_kernel(kernel="count", in_out=[%n])
  %b = item(source=%n) : f64
  %z = allocate() : tensor<f32, [64], cuda:0>
  launch_kernel(kernel="scale", inputs=[%y], outputs=[%z], scalars=[%b], grid=[2, 1, 1], block=[32, 1, 1])
  return %z
}
kernel @count """
define void @count(ptr %n) {
  %v = load double, ptr %n
  %s = fadd double %v, 1.0
  store double %s, ptr %n
  ret void
}
"""
)" + cuda_kernel("scale", "ptr, ptr, f64", {8, 8, 8}));
  ASSERT_EQ(program.module().layout().graphs.size(), 1u);
  const at::Tensor x = filled(1);
  for (const bool jit : {true, false}) {
    const at::Tensor counter = at::scalar_tensor(0, at::kDouble);
    for (int call = 0; call < 5; ++call) {
      forget();
      const auto result = jit ? program.run_jit({x, counter}) : program.run_evaluator({x, counter});
      ASSERT_EQ(result.error, "");
      const float first_number = static_cast<float>(2 * call + 1);
      EXPECT_EQ(first(result.outputs[0]), first_number * (first_number + 1));
      EXPECT_EQ(logged("launch a graph").size(), jit && call > 0 ? 1u : 0u);
    }
  }
}

TEST_F(CudaGraphTest, GraphsFollowTheStream) {
  RunnableProgram program = planned(kDiamond);
  cuda::CUstream stream = nullptr;
  HOSTJIT_CUDA(cuStreamCreate, &stream, cuda::CU_STREAM_NON_BLOCKING);
  for (const bool on_stream : {false, false, true, false, true, true}) {
    null_cuda_.set_current_stream(0, on_stream ? stream : nullptr);
    const auto result = program.run_jit({filled(1)});
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(first(result.outputs[0]), 8);
    EXPECT_EQ(null_cuda_.take_faults(), std::vector<std::string>());
  }
  null_cuda_.set_current_stream(0, nullptr);
}

TEST_F(CudaGraphTest, SizesOfACallArePartOfTheNodes) {
  RunnableProgram program = planned(R"(
program @any(%x: tensor<f32, [m], cuda:0>, %n: index) {
  %m = size(source=%x, dim=0) : index
  %a = allocate() : tensor<f32, [m], cuda:0>
  launch_kernel(kernel="twice", inputs=[%x], outputs=[%a], grid=[n, 1, 1], block=[32, 1, 1])
  %b = allocate() : tensor<f32, [m], cuda:0>
  launch_kernel(kernel="twice", inputs=[%a], outputs=[%b], grid=[n, 1, 1], block=[32, 1, 1])
  deallocate(buffer=%a)
  %c = allocate() : tensor<f32, [m], cuda:0>
  launch_kernel(kernel="twice", inputs=[%b], outputs=[%c], grid=[n, 1, 1], block=[32, 1, 1])
  return %c
}
)" + kCudaTwice);
  for (const int64_t blocks : {2, 0, 1}) {
    std::vector<int64_t> sizes;
    for (const std::string& symbol : program.symbols()) {
      sizes.push_back(symbol == "n" ? blocks : 32 * blocks);
    }
    program.use_row(sizes);
    for (int call = 0; call < 4; ++call) {
      const at::Tensor x = tensor(std::vector<float>(32 * blocks, 1.0F));
      forget();
      const auto result = program.run_jit({x, at::scalar_tensor(blocks, at::kLong)});
      ASSERT_EQ(result.error, "");
      EXPECT_TRUE(blocks == 0 || first(result.outputs[0]) == 8);
      EXPECT_EQ(null_cuda_.take_launches().size(), blocks > 0 ? 3u : 0u);
      // What a call made is given back when all of the graph is on its way.
      const std::vector<std::string> log = null_cuda_.take_log();
      const auto graph = std::ranges::find_if(
          log, [](const std::string& line) { return line.starts_with("launch a graph"); });
      if (graph == log.end()) continue;
      EXPECT_EQ(std::find_if(log.begin(), graph,
                             [](const std::string& line) { return line.starts_with("free"); }),
                graph);
    }
  }
}

TEST_F(CudaGraphTest, WhoCapturesACallGetsLaunchesWithMemoryOfTheirOwn) {
  RunnableProgram program = planned(kDiamond);
  cuda::CUstream stream = nullptr;
  HOSTJIT_CUDA(cuStreamCreate, &stream, cuda::CU_STREAM_NON_BLOCKING);
  null_cuda_.set_current_stream(0, stream);
  const at::Tensor x = filled(1);
  const auto buffers = [&] {
    std::set<std::string> found;
    for (const NullLaunch& launch : null_cuda_.take_launches()) {
      const std::string& to = launch.parameters.back();
      found.insert(to.substr(0, to.find('+')));
    }
    return found;
  };
  std::vector<RunnableProgram::Result> kept;  // so that no memory serves twice
  for (int call = 0; call < 3; ++call) kept.push_back(program.run_jit({x}));
  forget();
  kept.push_back(program.run_jit({x}));
  const std::set<std::string> before = buffers();
  null_cuda_.set_captured(stream, true);
  forget();
  kept.push_back(program.run_jit({x}));
  EXPECT_TRUE(logged("launch a graph").empty());
  const std::set<std::string> captured = buffers();
  null_cuda_.set_captured(stream, false);
  kept.push_back(program.run_jit({x}));
  const std::set<std::string> after = buffers();
  for (const auto* others : {&before, &after}) {
    for (const std::string& buffer : *others) EXPECT_FALSE(captured.contains(buffer)) << buffer;
  }
  for (const auto& result : kept) EXPECT_EQ(first(result.outputs[0]), 8);
  null_cuda_.set_current_stream(0, nullptr);
}

TEST_F(CudaGraphTest, AFailureNamesItsLaunch) {
  RunnableProgram program = planned(kDiamond);
  for (int call = 0; call < 2; ++call) program.run_jit({filled(1)});
  const int64_t before = null_cuda_.bytes_allocated();
  for (const char* function : {"cuGraphLaunch", "cuGraphExecKernelNodeSetParams"}) {
    null_cuda_.fail(function, cuda::CUDA_ERROR_ILLEGAL_ADDRESS);
    const auto result = program.run_jit({filled(1)});
    EXPECT_TRUE(contains(result.error, "CUDA error: an illegal memory access")) << result.error;
    EXPECT_TRUE(contains(result.error, "launch_kernel @")) << result.error;
    EXPECT_EQ(null_cuda_.bytes_allocated(), before);
    EXPECT_EQ(first(program.run_jit({filled(1)}).outputs[0]), 8);
  }
  null_cuda_.fail("cuGraphInstantiateWithFlags", cuda::CUDA_ERROR_OUT_OF_MEMORY);
  RunnableProgram another = planned(kDiamond);
  another.run_jit({filled(1)});
  EXPECT_TRUE(contains(another.run_jit({filled(1)}).error, "out of memory"));
  EXPECT_EQ(first(another.run_jit({filled(1)}).outputs[0]), 8);
}

TEST_F(CudaGraphTest, LoopsLaunchTheirGraphAgain) {
  RunnableProgram program = planned(R"(
program @loop(%x: tensor<f32, [64], cuda:0>, %n: index) {
  %zero = index_constant(value=0) : index
  %i = for(begin=%zero, end=%n) : index body {
    %a = allocate() : tensor<f32, [64], cuda:0>
    launch_kernel(kernel="twice", inputs=[%x], outputs=[%a], grid=[2, 1, 1], block=[32, 1, 1])
    launch_kernel(kernel="twice", inputs=[%a], outputs=[%x], grid=[2, 1, 1], block=[32, 1, 1])
  }
  return
}
)" + kCudaTwice);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = filled(1);
    const auto result = program.run_jit({x, at::scalar_tensor(3, at::kLong)});
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(first(x), 64);
  }
}

TEST_F(CudaTest, OffMeansLaunches) {
  const ScopedKnobs off({.disable = "cuda_graphs"});
  RunnableProgram program = planned(kDiamond);
  EXPECT_TRUE(program.module().layout().graphs.empty());
  for (int call = 0; call < 3; ++call) program.run_jit({filled(1)});
  EXPECT_EQ(logged("launch a graph"), std::vector<std::string>());
}

TEST_F(CudaTest, WithoutBeingAskedBothWaysAreTried) {
  RunnableProgram program = planned(kDiamond);
  for (int call = 0; call < 40; ++call) {
    EXPECT_EQ(first(program.run_jit({filled(1)}).outputs[0]), 8);
  }
  const size_t graphs = logged("launch a graph").size();
  EXPECT_TRUE(graphs == 8 || graphs == 8 + 24) << graphs;
}

}  // namespace
}  // namespace hostjit
