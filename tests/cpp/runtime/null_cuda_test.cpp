// SPDX-License-Identifier: Apache-2.0
#include "runtime/null_cuda.h"

#include <ATen/Functions.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

namespace hostjit::cuda {
namespace {

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

class NullCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    null_cuda_.set_current_device(0);
    null_cuda_.set_current_stream(0, nullptr);
    null_cuda_.take_log();
    null_cuda_.take_faults();
    null_cuda_.take_launches();
  }

  CUfunction function(const std::string& name, const std::vector<size_t>& parameter_bytes) {
    CUmodule module = nullptr;
    HOSTJIT_CUDA(cuModuleLoadDataEx, &module, NullCuda::image(name, parameter_bytes).c_str(), 0,
                 nullptr, nullptr);
    CUfunction found = nullptr;
    HOSTJIT_CUDA(cuModuleGetFunction, &found, module, name.c_str());
    return found;
  }
  CUstream stream() {
    CUstream made = nullptr;
    HOSTJIT_CUDA(cuStreamCreate, &made, CU_STREAM_NON_BLOCKING);
    return made;
  }
  CUevent event() {
    CUevent made = nullptr;
    HOSTJIT_CUDA(cuEventCreate, &made, CU_EVENT_DISABLE_TIMING);
    return made;
  }
  static CUlaunchConfig config(CUstream on = nullptr) {
    return {{2, 1, 1}, {32, 1, 1}, 0, on, nullptr, 0};
  }
  void launch(CUfunction kernel, CUdeviceptr memory, CUstream on = nullptr) {
    void* parameters[] = {&memory};
    const CUlaunchConfig how = config(on);
    HOSTJIT_CUDA(cuLaunchKernelEx, &how, kernel, parameters, nullptr);
  }
  CUdeviceptr memory(CUstream on = nullptr) { return null_cuda_.allocate(64, 0, on); }

  // Exactly one, with this text.
  void expect_fault(const char* text) {
    const std::vector<std::string> faults = null_cuda_.take_faults();
    ASSERT_EQ(faults.size(), 1u) << text;
    EXPECT_TRUE(contains(faults[0], text)) << faults[0];
  }
  void expect_no_fault() { EXPECT_EQ(null_cuda_.take_faults(), std::vector<std::string>()); }

  NullCuda& null_cuda_ = NullCuda::install();
};

TEST_F(NullCudaTest, LaunchesAreDecoded) {
  const CUfunction kernel = function("scale", {8, 8, 4, 1});
  CUdeviceptr to = memory();
  CUdeviceptr from = to + 16;
  int32_t count = 42;
  bool flag = true;
  void* parameters[] = {&to, &from, &count, &flag};
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.cluster_dim[0] = 2;
  attributes[0].value.cluster_dim[1] = attributes[0].value.cluster_dim[2] = 1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[1].value.number = 1;
  const CUlaunchConfig how = {{4, 2, 1}, {128, 1, 1}, 1024, nullptr, attributes, 2};
  HOSTJIT_CUDA(cuLaunchKernelEx, &how, kernel, parameters, nullptr);

  const std::vector<NullLaunch> launches = null_cuda_.take_launches();
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].kernel, "scale");
  EXPECT_EQ(launches[0].shape, (LaunchShape{{4, 2, 1}, {128, 1, 1}, {2, 1, 1}, 1024, true, false}));
  EXPECT_EQ(launches[0].parameters[1], launches[0].parameters[0] + "+16");
  EXPECT_EQ(launches[0].parameters[2], "0x2a");
  EXPECT_EQ(launches[0].parameters[3], "0x1");
  const std::string line = null_cuda_.take_log().back();
  EXPECT_TRUE(contains(line,
                       "<<<(4, 2, 1), (128, 1, 1), 1024 bytes shared, cluster (2, 1, 1), "
                       "cooperative>>>("))
      << line;
}

TEST_F(NullCudaTest, EmulationsComputeInTheOrderOfTheStream) {
  const CUfunction kernel = function("increment", {8, 4});
  null_cuda_.emulate("increment", [](const LaunchShape& shape, void** parameters) {
    const uint32_t threads = shape.grid[0] * shape.block[0];
    float* values = *static_cast<float**>(parameters[0]);
    for (uint32_t i = 0; i < threads; ++i) values[i] += *static_cast<float*>(parameters[1]);
  });
  CUdeviceptr values = null_cuda_.allocate(64 * sizeof(float), 0, nullptr);
  HOSTJIT_CUDA(cuMemsetD8Async, values, 0, 64 * sizeof(float), nullptr);
  float amount = 1.5F;
  void* parameters[] = {&values, &amount};
  const CUlaunchConfig how = config();
  HOSTJIT_CUDA(cuLaunchKernelEx, &how, kernel, parameters, nullptr);
  HOSTJIT_CUDA(cuLaunchKernelEx, &how, kernel, parameters, nullptr);
  EXPECT_EQ(reinterpret_cast<const float*>(values)[63], 3.0F);
  expect_no_fault();
}

TEST_F(NullCudaTest, ParametersAreReadFromPtx) {
  const char* const ptx = R"(
.version 8.0
.visible .entry first(
	.param .u64 first_param_0,
	.param .u64 .ptr .global .align 16 first_param_1,
	.param .f32 first_param_2,
	.param .align 8 .b8 first_param_3[24],
	.param .u8 first_param_4
)
.maxntid 128
{ ret; }
.visible .entry second()
{ ret; }
)";
  CUmodule module = nullptr;
  HOSTJIT_CUDA(cuModuleLoadDataEx, &module, ptx, 0, nullptr, nullptr);
  CUfunction found = nullptr;
  HOSTJIT_CUDA(cuModuleGetFunction, &found, module, "first");
  std::vector<std::pair<size_t, size_t>> parameters;
  size_t offset = 0;
  size_t size = 0;
  for (size_t i = 0; driver().cuFuncGetParamInfo(found, i, &offset, &size) == CUDA_SUCCESS; ++i) {
    parameters.emplace_back(offset, size);
  }
  const std::vector<std::pair<size_t, size_t>> expected = {
      {0, 8}, {8, 8}, {16, 4}, {24, 24}, {48, 1}};
  EXPECT_EQ(parameters, expected);
  HOSTJIT_CUDA(cuModuleGetFunction, &found, module, "second");
  EXPECT_EQ(driver().cuModuleGetFunction(&found, module, "third"), CUDA_ERROR_NOT_FOUND);
  HOSTJIT_CUDA(cuModuleUnload, module);
  EXPECT_EQ(driver().cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(NullCudaTest, UseAfterFreeIsAFault) {
  const CUfunction kernel = function("touch", {8});
  const CUdeviceptr address = memory();
  launch(kernel, address);
  null_cuda_.free(address);
  expect_no_fault();
  launch(kernel, address + 4);
  expect_fault("after its free");
  null_cuda_.free(address);
  expect_fault("which is no allocation");
}

TEST_F(NullCudaTest, StreamsWithoutAnEventBetweenThemAreAFault) {
  const CUfunction kernel = function("touch", {8});
  const CUstream first = stream();
  const CUstream second = stream();
  const CUdeviceptr address = memory(first);
  launch(kernel, address, first);
  launch(kernel, address, second);
  expect_fault("without waiting for it");

  const CUdeviceptr other = memory(first);
  launch(kernel, other, first);
  const CUevent done = event();
  HOSTJIT_CUDA(cuEventRecord, done, first);
  HOSTJIT_CUDA(cuStreamWaitEvent, second, done, 0);
  launch(kernel, other, second);
  expect_no_fault();
  // The other way round nothing was waited for.
  null_cuda_.free(other);
  expect_fault("is freed while stream");
}

TEST_F(NullCudaTest, TwoStreamsMayRead) {
  const CUfunction write = function("write", {8});
  const CUfunction read = function("read", {8});
  null_cuda_.declare_reads("read", {0});
  const CUstream first = stream();
  const CUstream second = stream();
  const CUdeviceptr address = memory(first);
  launch(write, address, first);
  HOSTJIT_CUDA(cuStreamSynchronize, first);
  launch(read, address, first);
  launch(read, address, second);
  expect_no_fault();
  launch(write, address, first);
  expect_fault("read, without waiting for it");
}

TEST_F(NullCudaTest, TheDefaultStreamWaitsForBlockingStreamsOnly) {
  const CUfunction kernel = function("touch", {8});
  CUstream blocking = nullptr;
  HOSTJIT_CUDA(cuStreamCreate, &blocking, 0);
  const CUdeviceptr address = memory();
  launch(kernel, address, blocking);
  launch(kernel, address);
  launch(kernel, address, blocking);
  expect_no_fault();
  launch(kernel, address, stream());
  // Of the stream that the memory is of, and of the launch.
  EXPECT_EQ(null_cuda_.take_faults().size(), 2u);
}

TEST_F(NullCudaTest, AccessesGoAsFarAsTheyAreSaidTo) {
  const CUfunction kernel = function("far", {8});
  null_cuda_.declare_extents("far", {64});
  const CUstream first = stream();
  const CUstream second = stream();
  const CUdeviceptr address = memory(first);
  HOSTJIT_CUDA(cuStreamSynchronize, first);
  launch(kernel, address, first);
  launch(kernel, address + 64, second);
  expect_no_fault();
  launch(kernel, address + 32, first);
  expect_fault("without waiting for it");
}

TEST_F(NullCudaTest, MemoryIsNotTakenFromAStreamThatWasNoted) {
  const CUfunction kernel = function("touch", {8});
  const CUstream owner = stream();
  const CUstream user = stream();
  const CUdeviceptr address = memory(owner);
  null_cuda_.note_use(address, user);
  HOSTJIT_CUDA(cuStreamSynchronize, owner);
  launch(kernel, address, user);
  null_cuda_.free(address);
  expect_no_fault();
}

TEST_F(NullCudaTest, AnEventThatWasNeverRecordedIsAFault) {
  HOSTJIT_CUDA(cuStreamWaitEvent, stream(), event(), 0);
  expect_fault("never recorded");
}

TEST_F(NullCudaTest, BadArgumentsAreWhatTheDriverSays) {
  const CUfunction kernel = function("touch", {8});
  CUdeviceptr address = memory();
  void* parameters[] = {&address};
  CUlaunchConfig how = config();
  const auto result = [&](CUfunction which) {
    return driver().cuLaunchKernelEx(&how, which, parameters, nullptr);
  };
  how.grid[1] = 0;
  EXPECT_EQ(result(kernel), CUDA_ERROR_INVALID_VALUE);
  how = config();
  how.block[0] = 2048;
  EXPECT_EQ(result(kernel), CUDA_ERROR_INVALID_VALUE);
  how = config();
  int nothing = 0;
  EXPECT_EQ(result(reinterpret_cast<CUfunction>(&nothing)), CUDA_ERROR_INVALID_HANDLE);
  const CUstream gone = stream();
  HOSTJIT_CUDA(cuStreamDestroy, gone);
  how.stream = gone;
  EXPECT_EQ(result(kernel), CUDA_ERROR_INVALID_HANDLE);
  how = config();
  null_cuda_.set_current_device(1);
  EXPECT_EQ(result(kernel), CUDA_ERROR_INVALID_CONTEXT);
  how.stream = stream();
  null_cuda_.set_current_device(0);
  EXPECT_EQ(result(kernel), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(null_cuda_.take_launches().empty());
}

TEST_F(NullCudaTest, FailuresAreReportedAndMayStick) {
  const CUfunction kernel = function("touch", {8});
  const CUdeviceptr address = memory();
  null_cuda_.fail("cuLaunchKernelEx", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, /*after=*/1);
  launch(kernel, address);
  try {
    launch(kernel, address);
    ADD_FAILURE() << "did not throw";
  } catch (const DriverError& error) {
    EXPECT_EQ(error.result(), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    EXPECT_STREQ(error.what(),
                 "cuLaunchKernelEx: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (too many resources "
                 "requested for launch)");
  }
  launch(kernel, address);
  null_cuda_.fail("cuLaunchKernelEx", CUDA_ERROR_ILLEGAL_ADDRESS, /*after=*/0, /*sticky=*/true);
  EXPECT_THROW(launch(kernel, address), DriverError);
  EXPECT_THROW(stream(), DriverError);
  null_cuda_.fail("none", CUDA_SUCCESS);
  launch(kernel, address);
}

class GraphTest : public NullCudaTest {
 protected:
  CUDA_KERNEL_NODE_PARAMS node_parameters(CUfunction kernel, void** parameters) {
    return {kernel, {1, 1, 1}, {32, 1, 1}, 0, parameters, nullptr, nullptr, nullptr};
  }
  CUgraphNode add(CUgraph graph, CUfunction kernel, CUdeviceptr address,
                  const std::vector<CUgraphNode>& dependencies) {
    void* parameters[] = {&address};
    const CUDA_KERNEL_NODE_PARAMS how = node_parameters(kernel, parameters);
    CUgraphNode node = nullptr;
    HOSTJIT_CUDA(cuGraphAddKernelNode, &node, graph, dependencies.data(), dependencies.size(),
                 &how);
    return node;
  }
};

TEST_F(GraphTest, NodesRunInTheOrderOfTheirDependencies) {
  const CUfunction kernel = function("touch", {8});
  const CUdeviceptr address = memory();
  CUgraph graph = nullptr;
  HOSTJIT_CUDA(cuGraphCreate, &graph, 0);
  const CUgraphNode first = add(graph, kernel, address, {});
  const CUgraphNode second = add(graph, kernel, address, {first});
  CUgraphExec exec = nullptr;
  HOSTJIT_CUDA(cuGraphInstantiateWithFlags, &exec, graph, 0);
  HOSTJIT_CUDA(cuGraphLaunch, exec, nullptr);
  launch(kernel, address);
  HOSTJIT_CUDA(cuGraphLaunch, exec, nullptr);
  EXPECT_EQ(null_cuda_.take_launches().size(), 5u);
  expect_no_fault();

  CUdeviceptr other = memory();
  void* parameters[] = {&other};
  const CUDA_KERNEL_NODE_PARAMS how = node_parameters(kernel, parameters);
  HOSTJIT_CUDA(cuGraphExecKernelNodeSetParams, exec, second, &how);
  other = 0;  // was copied
  HOSTJIT_CUDA(cuGraphLaunch, exec, nullptr);
  const std::vector<NullLaunch> launches = null_cuda_.take_launches();
  EXPECT_NE(launches[0].parameters, launches[1].parameters);
  EXPECT_TRUE(launches[1].from_graph);
}

TEST_F(GraphTest, AMissingDependencyIsAFault) {
  const CUfunction kernel = function("touch", {8});
  const CUdeviceptr address = memory();
  CUgraph graph = nullptr;
  HOSTJIT_CUDA(cuGraphCreate, &graph, 0);
  add(graph, kernel, address, {});
  add(graph, kernel, address, {});
  CUgraphExec exec = nullptr;
  HOSTJIT_CUDA(cuGraphInstantiateWithFlags, &exec, graph, 0);
  HOSTJIT_CUDA(cuGraphLaunch, exec, nullptr);
  EXPECT_EQ(null_cuda_.take_faults().size(), 1u);
}

TEST_F(NullCudaTest, PyTorchAllocatesAndGuards) {
  c10::Allocator* allocator = c10::GetAllocator(c10::DeviceType::CUDA);
  const int64_t before = null_cuda_.bytes_allocated();
  {
    const c10::DeviceGuard guard(c10::Device(c10::DeviceType::CUDA, 1));
    const c10::DataPtr memory = allocator->allocate(100);
    EXPECT_EQ(memory.device(), c10::Device(c10::DeviceType::CUDA, 1));
    EXPECT_EQ(null_cuda_.bytes_allocated(), before + 512);
  }
  EXPECT_EQ(null_cuda_.bytes_allocated(), before);
  EXPECT_EQ(null_cuda_.current_device(), 0);
  const CUstream mine = stream();
  {
    const c10::StreamGuard guard(c10::Stream(c10::Stream::UNSAFE,
                                             c10::Device(c10::DeviceType::CUDA, 0),
                                             reinterpret_cast<c10::StreamId>(mine)));
    EXPECT_EQ(null_cuda_.current_stream(0), mine);
  }
  EXPECT_EQ(null_cuda_.current_stream(0), nullptr);
  null_cuda_.fail("allocate", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THROW(allocator->allocate(100), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace hostjit::cuda
