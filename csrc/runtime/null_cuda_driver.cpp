// SPDX-License-Identifier: Apache-2.0
// The driver's functions, as the null device has them.

#include <algorithm>

#include "runtime/null_cuda_state.h"

namespace hostjit::cuda {
namespace {

// Runs `body(state)` as the driver's `function`.
template <class Body>
CUresult as(const char* function, const Body& body) {
  NullCuda::State& state = NullCuda::installed()->state();
  const std::lock_guard<std::recursive_mutex> lock(state.mutex);
  const CUresult failure = state.enter(function);
  return failure != CUDA_SUCCESS ? failure : body(state);
}

LaunchShape shape_of(const uint32_t (&grid)[3], const uint32_t (&block)[3], uint32_t shared) {
  LaunchShape shape;
  std::ranges::copy(grid, shape.grid);
  std::ranges::copy(block, shape.block);
  shape.shared_memory = shared;
  return shape;
}

LaunchShape shape_of(const CUlaunchConfig& config) {
  LaunchShape shape = shape_of(config.grid, config.block, config.shared_memory);
  for (uint32_t i = 0; i < config.num_attributes; ++i) {
    const CUlaunchAttribute& attribute = config.attributes[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: shape.cooperative = attribute.value.number != 0; break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        std::ranges::copy(attribute.value.cluster_dim, shape.cluster);
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        shape.programmatic = attribute.value.number != 0;
        break;
      default: break;
    }
  }
  return shape;
}

struct ErrorText {
  CUresult result;
  const char* name;
  const char* text;
};
#define HOSTJIT_CUDA_ERROR(name, text) {name, #name, text}
constexpr ErrorText kErrors[] = {
    HOSTJIT_CUDA_ERROR(CUDA_SUCCESS, "no error"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                       "too many resources requested for launch"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                       "operation not permitted when stream is capturing"),
    HOSTJIT_CUDA_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                       "the graph update was not performed because it included changes which "
                       "violated constraints specific to instantiated graph update"),
};
#undef HOSTJIT_CUDA_ERROR

CUresult find_error(CUresult error, const ErrorText** found) {
  *found = std::ranges::find(kErrors, error, &ErrorText::result);
  return *found == std::end(kErrors) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// The driver's functions, in the order of HOSTJIT_FOR_EACH_CUDA_FUNCTION.

CUresult cuInit(uint32_t) { return CUDA_SUCCESS; }

CUresult cuDriverGetVersion(int32_t* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  const ErrorText* found = nullptr;
  const CUresult result = find_error(error, &found);
  *name = result == CUDA_SUCCESS ? found->name : nullptr;
  return result;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* found = nullptr;
  const CUresult result = find_error(error, &found);
  *text = result == CUDA_SUCCESS ? found->text : nullptr;
  return result;
}

CUresult cuDeviceGetCount(int32_t* count) {
  return as("cuDeviceGetCount", [&](NullCuda::State& state) {
    *count = state.num_devices();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int32_t ordinal) {
  return as("cuDeviceGet", [&](NullCuda::State& state) {
    if (ordinal < 0 || ordinal >= state.num_devices()) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int32_t* value, int32_t attribute, CUdevice) {
  return as("cuDeviceGetAttribute", [&](NullCuda::State&) {
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; return CUDA_SUCCESS;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return as("cuDevicePrimaryCtxRetain", [&](NullCuda::State& state) {
    if (device < 0 || device >= state.num_devices()) return CUDA_ERROR_INVALID_DEVICE;
    *context = state.context(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return as("cuCtxGetCurrent", [&](NullCuda::State& state) {
    *context = state.current_context();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return as("cuCtxSetCurrent", [&](NullCuda::State& state) {
    if (context != nullptr && !state.is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
    state.set_current_context(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return as("cuCtxSynchronize", [](NullCuda::State& state) { return state.synchronize_context(); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, uint32_t, int32_t*, void**) {
  return as("cuModuleLoadDataEx", [&](NullCuda::State& state) {
    return state.load(module, static_cast<const char*>(image));
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return as("cuModuleUnload", [&](NullCuda::State& state) { return state.unload(module); });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return as("cuModuleGetFunction",
            [&](NullCuda::State& state) { return state.find_function(function, module, name); });
}

CUresult cuFuncSetAttribute(CUfunction, int32_t, int32_t value) {
  return as("cuFuncSetAttribute",
            [&](NullCuda::State&) { return value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; });
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  return as("cuFuncGetParamInfo",
            [&](NullCuda::State& state) { return state.parameter(function, index, offset, size); });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  return as("cuLaunchKernelEx", [&](NullCuda::State& state) {
    if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return state.launch(function, shape_of(*config), config->stream, parameters);
  });
}

CUresult cuStreamCreate(CUstream* stream, uint32_t flags) {
  return as("cuStreamCreate", [&](NullCuda::State& state) {
    return state.create_stream(stream, (flags & CU_STREAM_NON_BLOCKING) == 0);
  });
}

CUresult cuStreamDestroy(CUstream stream) {
  return as("cuStreamDestroy",
            [&](NullCuda::State& state) { return state.destroy_stream(stream); });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return as("cuStreamSynchronize",
            [&](NullCuda::State& state) { return state.synchronize(stream); });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, uint32_t) {
  return as("cuStreamWaitEvent", [&](NullCuda::State& state) { return state.wait(stream, event); });
}

CUresult cuEventCreate(CUevent* event, uint32_t) {
  return as("cuEventCreate", [&](NullCuda::State& state) { return state.create_event(event); });
}

CUresult cuEventDestroy(CUevent event) {
  return as("cuEventDestroy", [&](NullCuda::State& state) { return state.destroy_event(event); });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return as("cuEventRecord", [&](NullCuda::State& state) { return state.record(event, stream); });
}

CUresult cuEventSynchronize(CUevent event) {
  return as("cuEventSynchronize", [&](NullCuda::State& state) { return state.synchronize(event); });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return as("cuEventElapsedTime",
            [&](NullCuda::State& state) { return state.elapsed(milliseconds, begin, end); });
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return as("cuMemcpyAsync",
            [&](NullCuda::State& state) { return state.copy(to, from, bytes, stream); });
}

CUresult cuMemsetD8Async(CUdeviceptr to, uint8_t value, size_t bytes, CUstream stream) {
  return as("cuMemsetD8Async",
            [&](NullCuda::State& state) { return state.fill(to, value, bytes, stream); });
}

CUresult cuGraphCreate(CUgraph* graph, uint32_t) {
  return as("cuGraphCreate", [&](NullCuda::State& state) { return state.create_graph(graph); });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return as("cuGraphDestroy", [&](NullCuda::State& state) { return state.destroy_graph(graph); });
}

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              size_t num_dependencies, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return as("cuGraphAddKernelNode", [&](NullCuda::State& state) {
    const LaunchShape shape =
        shape_of(parameters->grid, parameters->block, parameters->shared_memory);
    return state.add_node(node, graph, {dependencies, num_dependencies}, parameters->function,
                          shape, parameters->parameters);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, uint64_t) {
  return as("cuGraphInstantiateWithFlags",
            [&](NullCuda::State& state) { return state.instantiate(exec, graph); });
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return as("cuGraphExecKernelNodeSetParams", [&](NullCuda::State& state) {
    const LaunchShape shape =
        shape_of(parameters->grid, parameters->block, parameters->shared_memory);
    return state.set_node(exec, node, parameters->function, shape, parameters->parameters);
  });
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, uint32_t enabled) {
  return as("cuGraphNodeSetEnabled",
            [&](NullCuda::State& state) { return state.set_enabled(exec, node, enabled != 0); });
}

CUresult cuStreamIsCapturing(CUstream stream, int32_t* status) {
  return as("cuStreamIsCapturing", [&](NullCuda::State& state) {
    *status = state.captured.contains(stream) ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return as("cuGraphExecDestroy", [&](NullCuda::State& state) { return state.destroy_exec(exec); });
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return as("cuGraphLaunch",
            [&](NullCuda::State& state) { return state.launch_graph(exec, stream); });
}

constexpr Driver kTable = {
#define HOSTJIT_CUDA_ENTRY(name, version, parameters) &(name),
    HOSTJIT_FOR_EACH_CUDA_FUNCTION(HOSTJIT_CUDA_ENTRY)
#undef HOSTJIT_CUDA_ENTRY
};

}  // namespace

const Driver& null_driver() { return kTable; }

}  // namespace hostjit::cuda
