// SPDX-License-Identifier: Apache-2.0
// Streams and events, by compiled code and by the evaluator, on the null device.
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <random>

#include "ir/printer.h"
#include "jit/cuda_fixture.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

using cuda::NullLaunch;

// A call of PyTorch that copies on the current stream.
at::Tensor copy_on_stream(const at::Tensor& x) {
  const TensorSpec spec{DType::kF32, {DeviceType::kCUDA, 0}, x.sizes().vec(), x.strides().vec()};
  at::Tensor made = new_cuda_tensor(spec, extent_in_bytes(spec));
  HOSTJIT_CUDA(cuMemcpyAsync,
               reinterpret_cast<cuda::CUdeviceptr>(made.unsafeGetTensorImpl()->mutable_data()),
               reinterpret_cast<cuda::CUdeviceptr>(x.unsafeGetTensorImpl()->data()),
               extent_in_bytes(spec), cuda::current_stream(0));
  return made;
}

TORCH_LIBRARY_FRAGMENT(hostjit_streams_test, library) {
  library.def("copy_on_stream(Tensor x) -> Tensor");
  library.impl("copy_on_stream", torch::dispatch(c10::DispatchKey::CUDA, TORCH_FN(copy_on_stream)));
}

const std::string kKernels = kCudaTwice + kCudaSum;

std::string launch(const std::string& kernel, const std::string& inputs, const std::string& output,
                   const std::string& more = "") {
  return "  launch_kernel(kernel=\"" + kernel + "\", inputs=[" + inputs + "], outputs=[" + output +
         "], grid=[2, 1, 1], block=[32, 1, 1]" + more + ")\n";
}
std::string allocate(const std::string& name) {
  return "  " + name + " = allocate() : tensor<f32, [64], cuda:0>\n";
}
std::string program_text(const std::string& body, const std::string& inputs = "") {
  return "program @streams(%x: tensor<f32, [64], cuda:0>" + inputs + ") {\n" + body + "}\n" +
         kKernels;
}

class CudaStreamsTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    null_cuda_.declare_extents("twice", {256, 256});
    null_cuda_.declare_extents("sum", {256, 256, 256});
  }

  // Results of both runtimes, twice each.
  void expect(const std::string& text, const std::vector<float>& values) {
    RunnableProgram program = planned(text);
    for (const bool jit : {true, false, true, false}) {
      const std::vector<at::Tensor> inputs{filled(1)};
      const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
      ASSERT_EQ(result.error, "") << text;
      ASSERT_EQ(result.outputs.size(), values.size());
      for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(first(result.outputs[i]), values[i]);
      EXPECT_EQ(cuda::current_stream(0), nullptr);
    }
  }

  std::vector<int32_t> streams_of_launches() {
    std::vector<int32_t> streams;
    for (const NullLaunch& launch : null_cuda_.take_launches()) streams.push_back(launch.stream);
    return streams;
  }

  const ScopedKnobs launches_only_{{.disable = "cuda_graphs"}};
};

std::string branches(const std::string& before_sum) {
  return program_text(
      "  %main = current_stream() : stream\n  %side = pool_stream() : stream\n" + allocate("%a") +
      launch("twice", "%x", "%a") + "  set_stream(stream=%side)\n" + allocate("%b") +
      launch("twice", "%x", "%b") + allocate("%c") + launch("twice", "%b", "%c") +
      "  %done = record_event() : event\n  set_stream(stream=%main)\n" + before_sum +
      allocate("%y") + launch("sum", "%a, %c", "%y") + "  return %y\n");
}

TEST_F(CudaStreamsTest, BranchesRunOnTwoStreams) {
  const std::string text = branches("  wait_event(event=%done)\n");
  expect(text, {6});
  RunnableProgram program = planned(text);
  for (const bool jit : {true, false}) {
    forget();
    const std::vector<at::Tensor> inputs{filled(1)};
    if (jit) {
      program.run_jit(inputs);
    } else {
      program.run_evaluator(inputs);
    }
    const std::vector<int32_t> streams = streams_of_launches();
    ASSERT_EQ(streams.size(), 4u);
    EXPECT_EQ(streams[0], streams[3]);
    EXPECT_EQ(streams[1], streams[2]);
    EXPECT_NE(streams[0], streams[1]);
  }
}

TEST_F(CudaStreamsTest, AMissingEventIsAFault) {
  RunnableProgram program = planned(branches(""));
  for (const bool jit : {true, false}) {
    const std::vector<at::Tensor> inputs{filled(1)};
    ASSERT_EQ((jit ? program.run_jit(inputs) : program.run_evaluator(inputs)).error, "");
    const std::vector<std::string> faults = null_cuda_.take_faults();
    ASSERT_FALSE(faults.empty());
    EXPECT_TRUE(contains(faults[0], "without waiting for it")) << faults[0];
  }
}

TEST_F(CudaStreamsTest, ALaunchMayHaveAStreamOfItsOwn) {
  expect(program_text("  %side = pool_stream() : stream\n" + allocate("%a") +
                      launch("twice", "%x", "%a", ", stream=%side") +
                      "  %done = record_event(stream=%side) : event\n"
                      "  wait_event(event=%done)\n" +
                      allocate("%y") + launch("twice", "%a", "%y") + "  return %y\n"),
         {4});
}

TEST_F(CudaStreamsTest, ResultsOfOtherStreamsBelongToTheCaller) {
  const std::string text =
      program_text("  %side = pool_stream() : stream\n  set_stream(stream=%side)\n" +
                   allocate("%y") + launch("twice", "%x", "%y") +
                   "  %z = aten_call(target=\"hostjit_streams_test::copy_on_stream\", inputs=[%y],"
                   " arguments=[$0]) : tensor<f32, [64], cuda:0>\n  return %y, %z\n");
  RunnableProgram program = planned(text);
  for (const bool jit : {true, false}) {
    const std::vector<at::Tensor> inputs{filled(1)};
    auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(first(result.outputs[1]), 2.0F);
    // The caller goes on without a word about streams, and frees them.
    HOSTJIT_CUDA(cuMemsetD8Async,
                 reinterpret_cast<cuda::CUdeviceptr>(
                     result.outputs[1].unsafeGetTensorImpl()->mutable_data()),
                 0, 256, cuda::current_stream(0));
    result.outputs.clear();
  }
}

TEST_F(CudaStreamsTest, CallsOfPyTorchGoToTheCurrentStream) {
  RunnableProgram program = planned(
      program_text("  %main = current_stream() : stream\n  %side = pool_stream() : stream\n"
                   "  set_stream(stream=%side)\n"
                   "  %z = aten_call(target=\"hostjit_streams_test::copy_on_stream\", inputs=[%x],"
                   " arguments=[$0]) : tensor<f32, [64], cuda:0>\n"
                   "  %done = record_event() : event\n  wait_event(event=%done, stream=%main)\n"
                   "  set_stream(stream=%main)\n" +
                   allocate("%y") + launch("twice", "%z", "%y") + "  return %y\n"));
  for (const bool jit : {true, false}) {
    forget();
    const std::vector<at::Tensor> inputs{filled(1)};
    const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(first(result.outputs[0]), 2.0F);
    const std::vector<std::string> copies = logged("copy");
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_FALSE(contains(copies[0], "on stream 0")) << copies[0];
  }
}

TEST_F(CudaStreamsTest, TheCallersStreamIsRespected) {
  cuda::CUstream stream = nullptr;
  HOSTJIT_CUDA(cuStreamCreate, &stream, cuda::CU_STREAM_NON_BLOCKING);
  RunnableProgram program = planned(branches("  wait_event(event=%done)\n"));
  for (const bool on_stream : {false, true, false, true}) {
    for (const bool jit : {true, false}) {
      null_cuda_.set_current_stream(0, on_stream ? stream : nullptr);
      const std::vector<at::Tensor> inputs{filled(1)};
      forget();
      const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
      EXPECT_EQ(first(result.outputs[0]), 6.0F);
      EXPECT_EQ(cuda::current_stream(0), on_stream ? stream : nullptr);
      EXPECT_EQ(streams_of_launches()[0] != 0, on_stream);
      EXPECT_EQ(null_cuda_.take_faults(), std::vector<std::string>());
    }
  }
  null_cuda_.set_current_stream(0, nullptr);
}

TEST_F(CudaStreamsTest, AFailedCallEndsOnTheCallersStream) {
  RunnableProgram program = planned(branches("  wait_event(event=%done)\n"));
  const std::vector<at::Tensor> inputs{filled(1)};
  program.run_jit(inputs);
  const int64_t before = null_cuda_.bytes_allocated();
  for (const bool jit : {true, false}) {
    for (int64_t after = 0; after < 4; ++after) {
      null_cuda_.fail("cuLaunchKernelEx", cuda::CUDA_ERROR_INVALID_VALUE, after);
      const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
      EXPECT_TRUE(contains(result.error, "CUDA error")) << result.error;
      EXPECT_EQ(cuda::current_stream(0), nullptr);
      EXPECT_EQ(null_cuda_.bytes_allocated(), before);
    }
    for (const char* function : {"cuEventRecord", "cuStreamWaitEvent"}) {
      null_cuda_.fail(function, cuda::CUDA_ERROR_INVALID_VALUE, /*after=*/1);
      const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
      EXPECT_TRUE(contains(result.error, function)) << result.error;
      EXPECT_EQ(cuda::current_stream(0), nullptr);
    }
    null_cuda_.take_faults();  // of events that could not order anything
  }
  expect(branches("  wait_event(event=%done)\n"), {6});
}

TEST_F(CudaStreamsTest, ARegionEndsOnTheStreamItBeganWith) {
  const std::string text = program_text(
      "  %side = pool_stream() : stream\n  %zero = index_constant(value=0) : index\n"
      "  %three = index_constant(value=3) : index\n" +
      allocate("%y") + launch("twice", "%x", "%y") +
      "  %i = for(begin=%zero, end=%three) : index body {\n"
      "    %before = record_event() : event\n"
      "    set_stream(stream=%side)\n    wait_event(event=%before)\n" +
      allocate("%t") + launch("twice", "%y", "%t") +
      "    %after = record_event() : event\n"
      "    %here = current_stream() : stream\n"
      "    synchronize(stream=%here)\n" +
      launch("twice", "%t", "%y") + "    synchronize()\n  }\n" + allocate("%z") +
      launch("twice", "%y", "%z") + "  return %z\n");
  expect(text, {2.0F * 64 * 2});
}

TEST_F(CudaStreamsTest, AStreamMayBeAnInput) {
  const std::string text = program_text(
      "  set_stream(stream=%s)\n" + allocate("%y") + launch("twice", "%x", "%y") + "  return %y\n",
      ", %s: stream");
  RunnableProgram program = planned(text);
  cuda::CUstream stream = nullptr;
  HOSTJIT_CUDA(cuStreamCreate, &stream, cuda::CU_STREAM_NON_BLOCKING);
  for (const bool jit : {true, false}) {
    for (const int64_t device : {0, 1}) {
      forget();
      const std::vector<at::Tensor> inputs{filled(1),
                                           at::tensor({reinterpret_cast<int64_t>(stream), device})};
      const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
      const std::vector<int32_t> streams = streams_of_launches();
      if (device == 1) {
        EXPECT_TRUE(contains(result.error, "a stream of cuda:1, expected one of cuda:0"))
            << result.error;
        EXPECT_TRUE(streams.empty());
        continue;
      }
      ASSERT_EQ(result.error, "");
      ASSERT_EQ(streams.size(), 1u);
      EXPECT_NE(streams[0], 0);
    }
  }
}

// Launches that read some of the values before them, each into new memory or over an older value.
// The last values are results.
std::string random_branches(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::string> values{"%x"};
  std::string body;
  const auto pick = [&] { return values[random() % values.size()]; };
  const size_t num_steps = 4 + seed % 20;
  for (size_t step = 0; step < num_steps; ++step) {
    const std::string a = pick();
    const std::string b = pick();
    std::string out = pick();
    if (out == "%x" || out == a || out == b || random() % 4 != 0) {
      out = "%v" + std::to_string(step);
      body += allocate(out);
      values.push_back(out);
    }
    if (random() % 8 == 0) {
      values.push_back("%c" + std::to_string(step));
      body += "  " + values.back() +
              " = aten_call(target=\"hostjit_streams_test::copy_on_stream\", inputs=[" + b +
              "], arguments=[$0]) : tensor<f32, [64], cuda:0>\n";
    }
    body += random() % 2 ? launch("twice", a, out) : launch("sum", a + ", " + b, out);
  }
  body += "  return " + values.back() + ", " + values[values.size() / 2] + "\n";
  return program_text(body);
}

class SpreadStreamsTest : public CudaStreamsTest {
 protected:
  std::vector<float> results(RunnableProgram& program, bool jit) {
    const std::vector<at::Tensor> inputs{filled(1)};
    const auto result = jit ? program.run_jit(inputs) : program.run_evaluator(inputs);
    EXPECT_EQ(result.error, "");
    std::vector<float> values;
    for (const at::Tensor& output : result.outputs) values.push_back(first(output));
    return values;
  }
};

TEST_F(SpreadStreamsTest, SpreadProgramsAreOrdered) {
  constexpr uint32_t kNumPrograms = 60;
  size_t num_spread = 0;
  for (uint32_t seed = 0; seed < kNumPrograms; ++seed) {
    const std::string text = random_branches(seed);
    RunnableProgram plain = planned(text);
    const std::vector<float> expected = results(plain, /*jit=*/true);
    const ScopedKnobs streams{{.enable = concat("spread_streams(", 2 + seed % 3, ")"),
                               .disable = seed % 2 ? "cuda_graphs" : ""}};
    RunnableProgram program = planned(text);
    num_spread += contains(to_string(program.program()), "pool_stream");
    for (const bool jit : {true, false, true, true}) {
      ASSERT_EQ(results(program, jit), expected) << text;
      ASSERT_EQ(null_cuda_.take_faults(), std::vector<std::string>())
          << to_string(program.program());
    }
  }
  EXPECT_GT(num_spread, kNumPrograms / 2);  // otherwise the above says nothing
}

// Takes the n-th wait out of the program.
bool drop_wait(Program& program, size_t n) {
  for (auto place = program.body().begin(); place != program.body().end(); ++place) {
    if (!(*place)->is<WaitEvent>() || n-- > 0) continue;
    program.body().erase(place);
    return true;
  }
  return false;
}

TEST_F(SpreadStreamsTest, EachWaitIsNeeded) {
  size_t num_waits = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const ScopedKnobs streams{{.enable = "spread_streams(3)"}};
    for (size_t n = 0;; ++n) {
      Program program = parse_program(random_branches(seed));
      run_pipeline(program);
      if (!drop_wait(program, n)) break;
      ++num_waits;
      RunnableProgram runnable(program);
      runnable.run_jit({filled(1)});
      ASSERT_FALSE(null_cuda_.take_faults().empty()) << n << "\n" << to_string(program);
    }
  }
  EXPECT_GT(num_waits, 20u);
}

TEST_F(SpreadStreamsTest, PartsOfOneBufferNeedNoOrder) {
  const std::string half = "tensor<f32, [32], cuda:0>";
  const auto parts = [&](const std::string& offset) {
    return program_text(allocate("%b") + "  %low = view(source=%b) : " + half +
                        "\n  %high = view(source=%b, offset=" + offset + ") : " + half + "\n" +
                        launch("half", "%x", "%low") + launch("half", "%x", "%high") +
                        allocate("%y") + launch("twice", "%b", "%y") + "  return %y\n") +
           cuda_kernel("half", "ptr, ptr", {8, 8});
  };
  null_cuda_.declare_extents("half", {128, 128});
  null_cuda_.declare_reads("half", {0});
  null_cuda_.emulate("half", [](const cuda::LaunchShape&, void** parameters) {
    const float* from = *static_cast<float**>(parameters[0]);
    for (int i = 0; i < 32; ++i) (*static_cast<float**>(parameters[1]))[i] = 2 * from[i];
  });
  const ScopedKnobs streams{{.enable = "spread_streams(2)"}};
  RunnableProgram apart = planned(parts("32"));
  EXPECT_TRUE(contains(to_string(apart.program()), "pool_stream"));
  EXPECT_FALSE(contains(to_string(planned(parts("31")).program()), "pool_stream"));
  // The evaluator's views are PyTorch's, which the null device has no as_strided for.
  EXPECT_EQ(results(apart, /*jit=*/true), std::vector<float>{4});
  EXPECT_EQ(null_cuda_.take_faults(), std::vector<std::string>());
}

TEST_F(SpreadStreamsTest, BuffersOfOneStreamShareMemory) {
  std::string body;
  for (const std::string branch : {"a", "b"}) {
    std::string before = "%x";
    for (int i = 0; i < 8; ++i) {
      const std::string next = "%" + branch + std::to_string(i);
      body += allocate(next) + launch("twice", before, next);
      before = next;
    }
  }
  body += allocate("%y") + launch("sum", "%a7, %b7", "%y") + "  return %y\n";
  const ScopedKnobs streams{{.enable = "spread_streams(2)"}};
  const std::string text = program_text(body);
  expect(text, {512});
  // Two at a time for each branch.
  EXPECT_TRUE(contains(to_string(planned(text).program()), "device_arena(bytes=1024"))
      << to_string(planned(text).program());
}

}  // namespace
}  // namespace hostjit
