// SPDX-License-Identifier: Apache-2.0
// Programs of any size on CUDA: buffers that stay inside share one arena, on the null device.
#include <algorithm>
#include <random>

#include "ir/printer.h"
#include "jit/cuda_fixture.h"
#include "passes/memory_plan_report.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

std::string any_shape(const std::string& body) {
  return "program @any(%x: tensor<f32, [n], cuda:0>) {\n  %n = size(source=%x, dim=0) : index\n" +
         body + "}\n" + kCudaTwice + kCudaSum;
}

std::string allocate(const std::string& name) {
  return "  " + name + " = allocate() : tensor<f32, [n], cuda:0>\n";
}

std::string launch(const std::string& kernel, const std::string& inputs, const std::string& out) {
  return "  launch_kernel(kernel=\"" + kernel + "\", inputs=[" + inputs + "], outputs=[" + out +
         "], grid=[1, 1, 1], block=[n, 1, 1])\n";
}

// y = 32 * x.
std::string chain() {
  std::string body;
  std::string before = "%x";
  for (const std::string next : {"%a", "%b", "%c", "%d"}) {
    body += allocate(next) + launch("twice", before, next);
    before = next;
  }
  return body + allocate("%y") + launch("twice", before, "%y") + "  return %y\n";
}

class CudaRowsTest : public CudaTest {
 protected:
  // A call with `size` elements of 1: all elements of the result are `expected`.
  void expect_call(RunnableProgram& program, int64_t size, float expected, bool jit = true) {
    const std::vector<at::Tensor> inputs{tensor(std::vector<float>(size, 1.0F))};
    forget();
    const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
    ASSERT_EQ(result.error, "");
    const auto* data = static_cast<const float*>(result.outputs[0].unsafeGetTensorImpl()->data());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(data[i], expected);
    EXPECT_EQ(null_cuda_.take_faults(), std::vector<std::string>());
  }
};

TEST_F(CudaRowsTest, ACallMakesItsArenaAndItsResult) {
  for (const char* graphs : {"cuda_graphs", ""}) {
    const ScopedKnobs launches_only{{.disable = graphs}};
    RunnableProgram program = planned(any_shape(chain()));
    EXPECT_TRUE(contains(to_string(program.program()), "device_arena(blocks="))
        << to_string(program.program());
    for (const int64_t size : {64, 7, 256, 64}) {
      program.use_row({size});
      for (int call = 0; call < 4; ++call) {
        expect_call(program, size, 32);
        if (call == 0) continue;
        EXPECT_EQ(logged("allocate").size(), 2u);
      }
      expect_call(program, size, 32, /*jit=*/false);
    }
  }
}

TEST_F(CudaRowsTest, BuffersShareTheBytesOfARow) {
  RunnableProgram program = planned(any_shape(chain()));
  const std::string report = memory_plan_report(program.program());
  EXPECT_TRUE(contains(report, "arena of cuda:0 of ")) << report;
  program.use_row({100});
  const ArenaPlan& plan = program.program().device_arena();
  EXPECT_GE(plan.lower_bound, 400);
  EXPECT_LE(plan.bytes, 2 * 512) << "two at a time; " << to_string(program.program());
  EXPECT_EQ(plan.alignment, 256);
}

TEST_F(CudaRowsTest, NodesOfAGraphWaitForWhoReadTheirMemoryBefore) {
  // %c and %b are alive together, %a and %c are not: they may have the same bytes.
  RunnableProgram program =
      planned(any_shape(allocate("%a") + launch("twice", "%x", "%a") + allocate("%b") +
                        launch("sum", "%a, %x", "%b") + "  deallocate(buffer=%a)\n" +
                        allocate("%c") + launch("twice", "%x", "%c") + allocate("%y") +
                        launch("sum", "%b, %c", "%y") + "  return %y\n"));
  const GraphSpec& graph = program.module().layout().graphs.at(0);
  EXPECT_EQ(graph.nodes[2].dependencies, std::vector<int64_t>({1}));
  // Branches that are alive together run side by side.
  RunnableProgram branches = planned(any_shape(
      allocate("%a") + launch("twice", "%x", "%a") + allocate("%b") + launch("twice", "%x", "%b") +
      allocate("%y") + launch("sum", "%a, %b", "%y") + "  return %y\n"));
  EXPECT_TRUE(branches.module().layout().graphs.at(0).nodes[1].dependencies.empty());
}

TEST_F(CudaRowsTest, TheArenaIsOfTheStreamOfTheCall) {
  RunnableProgram program = planned(any_shape(chain()));
  program.use_row({64});
  cuda::CUstream stream = nullptr;
  HOSTJIT_CUDA(cuStreamCreate, &stream, cuda::CU_STREAM_NON_BLOCKING);
  for (const bool on_stream : {false, true, true, false, true}) {
    null_cuda_.set_current_stream(0, on_stream ? stream : nullptr);
    expect_call(program, 64, 32);
  }
  null_cuda_.set_current_stream(0, nullptr);
}

TEST_F(CudaRowsTest, MemoryOfTheHostHasBlocksOfItsOwn) {
  const std::string host =
      "  %h = allocate() : tensor<f32, [n], cpu>\n  fill(value=3.0, out=%h)\n"
      "  %k = allocate() : tensor<f32, [n], cpu>\n  copy(source=%h, out=%k)\n"
      "  fill(value=5.0, out=%h)\n"
      "  %z = allocate() : tensor<f32, [n], cpu>\n  copy(source=%k, out=%z)\n";
  std::string body = chain();
  body.replace(body.find("  return %y"), std::string::npos, host + "  return %y, %z\n");
  RunnableProgram program = planned(any_shape(body));
  for (const int64_t size : {64, 5}) {
    program.use_row({size});
    const auto result = program.run_jit({tensor(std::vector<float>(size, 1.0F))});
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(first(result.outputs[0]), 32);
    EXPECT_TRUE(at::equal(result.outputs[1], at::full({size}, 3.0F)));
  }
}

// Branches of sums and doubles over several streams, in every row what eager makes of them.
TEST_F(CudaRowsTest, StreamsShareNoMemory) {
  const ScopedKnobs streams{{.enable = "spread_streams(3)", .disable = "cuda_graphs"}};
  size_t num_spread = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    std::vector<float> values{1};
    std::vector<std::string> names{"%x"};
    std::string body;
    for (int step = 0; step < 12; ++step) {
      const size_t a = random() % names.size();
      const size_t b = random() % names.size();
      const std::string next = "%v" + std::to_string(step);
      const bool is_sum = random() % 2 == 0;
      body += allocate(next) + (is_sum ? launch("sum", names[a] + ", " + names[b], next)
                                       : launch("twice", names[a], next));
      values.push_back(is_sum ? values[a] + values[b] : 2 * values[a]);
      names.push_back(next);
    }
    RunnableProgram program = planned(any_shape(body + "  return " + names.back() + "\n"));
    num_spread += contains(to_string(program.program()), "pool_stream") ? 1 : 0;
    for (const int64_t size : {64, 9}) {
      program.use_row({size});
      for (int call = 0; call < 2; ++call) expect_call(program, size, values.back());
    }
  }
  EXPECT_GT(num_spread, 10u);
}

}  // namespace
}  // namespace hostjit
