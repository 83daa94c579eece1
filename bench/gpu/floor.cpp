// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cuda_driver.h"

// What the driver alone costs: loops over its functions around one small kernel, called from
// bench/gpu/floor.py through ctypes. Each loop begins on an idle stream, and what it queues is
// short, so that the host never waits for the device.

namespace {

using namespace hostjit::cuda;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kBlock = 128;

using LaunchKernel = CUresult (*)(CUfunction, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
                                  uint32_t, uint32_t, CUstream, void**, void**);

// A chain of launches between two buffers, and the same chain as a graph.
struct Floor {
  Floor(const char* image, const char* entry, uint64_t from, uint64_t to, int64_t count,
        size_t launches)
      : buffers{from, to}, count(count), launches(launches) {
    CUcontext context = nullptr;
    HOSTJIT_CUDA(cuCtxGetCurrent, &context);
    HOSTJIT_CHECK(context, "no CUDA context is current");
    HOSTJIT_CUDA(cuModuleLoadDataEx, &module, image, 0, nullptr, nullptr);
    HOSTJIT_CUDA(cuModuleGetFunction, &function, module, entry);
    HOSTJIT_CUDA(cuStreamCreate, &own_stream, CU_STREAM_NON_BLOCKING);
    HOSTJIT_CUDA(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    launch_kernel = reinterpret_cast<LaunchKernel>(dlsym(library, "cuLaunchKernel"));
    HOSTJIT_CHECK(launch_kernel, "libcuda.so.1 has no cuLaunchKernel");
    make_graph();
  }

  void make_graph() {
    HOSTJIT_CUDA(cuGraphCreate, &graph, 0);
    for (size_t i = 0; i < launches; ++i) {
      const size_t num_dependencies = nodes.empty() ? 0 : 1;
      const CUgraphNode previous = nodes.empty() ? nullptr : nodes.back();
      CUgraphNode node = nullptr;
      const CUDA_KERNEL_NODE_PARAMS parameters = node_parameters(i);
      HOSTJIT_CUDA(cuGraphAddKernelNode, &node, graph, &previous, num_dependencies, &parameters);
      nodes.push_back(node);
    }
    HOSTJIT_CUDA(cuGraphInstantiateWithFlags, &exec, graph, 0);
  }

  // The parameters of launch `i`: from one buffer to the other, and back in the next one.
  void** parameters(size_t i) {
    packed[0] = &buffers[i % 2];
    packed[1] = &buffers[1 - i % 2];
    packed[2] = &count;
    return packed;
  }

  CUDA_KERNEL_NODE_PARAMS node_parameters(size_t i) {
    CUDA_KERNEL_NODE_PARAMS node{};
    node.function = function;
    node.grid[0] = node.grid[1] = node.grid[2] = 1;
    node.block[0] = kBlock;
    node.block[1] = node.block[2] = 1;
    node.parameters = parameters(i);
    return node;
  }

  uint64_t buffers[2];
  int64_t count;
  size_t launches;
  void* packed[3] = {};
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUstream own_stream = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> nodes;
  CUgraphExec exec = nullptr;
  LaunchKernel launch_kernel = nullptr;
};

void launch(Floor& floor, CUstream stream) {
  for (size_t i = 0; i < floor.launches; ++i) {
    check(floor.launch_kernel(floor.function, 1, 1, 1, kBlock, 1, 1, 0, stream, floor.parameters(i),
                              nullptr),
          "cuLaunchKernel");
  }
}

void launch_ex(Floor& floor, CUstream stream) {
  const CUlaunchConfig config{{1, 1, 1}, {kBlock, 1, 1}, 0, stream, nullptr, 0};
  for (size_t i = 0; i < floor.launches; ++i) {
    HOSTJIT_CUDA(cuLaunchKernelEx, &config, floor.function, floor.parameters(i), nullptr);
  }
}

void launch_ex_synchronised(Floor& floor, CUstream stream) {
  launch_ex(floor, stream);
  HOSTJIT_CUDA(cuStreamSynchronize, stream);
}

void graph_launch(Floor& floor, CUstream stream) {
  HOSTJIT_CUDA(cuGraphLaunch, floor.exec, stream);
}

void graph_launch_synchronised(Floor& floor, CUstream stream) {
  graph_launch(floor, stream);
  HOSTJIT_CUDA(cuStreamSynchronize, stream);
}

void set_node(Floor& floor, size_t i) {
  const CUDA_KERNEL_NODE_PARAMS parameters = floor.node_parameters(i);
  HOSTJIT_CUDA(cuGraphExecKernelNodeSetParams, floor.exec, floor.nodes[i], &parameters);
}

void set_one_node(Floor& floor, CUstream /*stream*/) { set_node(floor, 0); }

void set_every_node(Floor& floor, CUstream /*stream*/) {
  for (size_t i = 0; i < floor.nodes.size(); ++i) set_node(floor, i);
}

void set_one_node_and_launch(Floor& floor, CUstream stream) {
  set_node(floor, 0);
  graph_launch(floor, stream);
}

void event_record(Floor& floor, CUstream stream) {
  HOSTJIT_CUDA(cuEventRecord, floor.event, stream);
}

void stream_wait_event(Floor& floor, CUstream stream) {
  HOSTJIT_CUDA(cuStreamWaitEvent, stream, floor.event, 0);
}

struct Loop {
  std::string_view name;
  void (*body)(Floor& floor, CUstream stream);
};

constexpr Loop kLoops[] = {
    {"launch", launch},
    {"launch_ex", launch_ex},
    {"launch_ex_synchronised", launch_ex_synchronised},
    {"graph_launch", graph_launch},
    {"graph_launch_synchronised", graph_launch_synchronised},
    {"set_one_node", set_one_node},
    {"set_every_node", set_every_node},
    {"set_one_node_and_launch", set_one_node_and_launch},
    {"event_record", event_record},
    {"stream_wait_event", stream_wait_event},
};

double seconds(Floor& floor, std::string_view name, bool own_stream, int32_t count) {
  using Clock = std::chrono::steady_clock;
  const CUstream stream = own_stream ? floor.own_stream : nullptr;
  for (const Loop& loop : kLoops) {
    if (loop.name != name) continue;
    HOSTJIT_CUDA(cuStreamSynchronize, stream);
    const Clock::time_point begin = Clock::now();
    for (int32_t i = 0; i < count; ++i) loop.body(floor, stream);
    const Clock::time_point end = Clock::now();
    HOSTJIT_CUDA(cuStreamSynchronize, stream);
    return std::chrono::duration<double>(end - begin).count();
  }
  throw hostjit::Error(hostjit::concat("no loop '", name, "'"));
}

thread_local std::string last_error;

// Calls `function`; nothing is thrown through ctypes.
template <class Result, class Function>
Result guarded(Result failed, Function function) {
  try {
    return function();
  } catch (const std::exception& error) {
    last_error = error.what();
    return failed;
  }
}

}  // namespace

extern "C" {

const char* floor_error() { return last_error.c_str(); }

// Loads the kernel `entry`(from, to, count) into the current context; null on an error. It lives as
// long as the process.
Floor* floor_open(const char* image, const char* entry, uint64_t from, uint64_t to, int64_t count,
                  int32_t launches) {
  return guarded<Floor*>(nullptr, [&] {
    return new Floor(image, entry, from, to, count, static_cast<size_t>(launches));
  });
}

// Seconds of `count` rounds of a loop, on the legacy default stream or on one of our own that does
// not wait for it; negative on an error.
double floor_seconds(Floor* floor, const char* loop, int32_t own_stream, int32_t count) {
  return guarded(-1.0, [&] { return seconds(*floor, loop, own_stream != 0, count); });
}

}  // extern "C"
