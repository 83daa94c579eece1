// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// What hostjit uses of the CUDA driver's binary interface, under the driver's own names (CUDA
// Driver API reference, 12.0 and later). Building needs no CUDA toolkit;
// tests/cpp/runtime/cuda_types_test.cpp compares these with cuda.h where there is one.

namespace hostjit::cuda {

enum CUresult : int32_t {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
};

using CUdevice = int32_t;
using CUdeviceptr = uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUkernel = struct CUkern_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;

// CUlaunchAttributeID
constexpr int32_t CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2;
constexpr int32_t CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4;
constexpr int32_t CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6;

struct CUlaunchAttribute {
  int32_t id;
  int32_t padding;
  union {
    int32_t number;           // cooperative, programmaticStreamSerializationAllowed
    uint32_t cluster_dim[3];  // x, y, z
    char bytes[64];
  } value;
};

struct CUlaunchConfig {
  uint32_t grid[3];  // x, y, z
  uint32_t block[3];
  uint32_t shared_memory;
  CUstream stream;
  CUlaunchAttribute* attributes;
  uint32_t num_attributes;
};

struct CUDA_KERNEL_NODE_PARAMS {  // _v2
  CUfunction function;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_memory;
  void** parameters;
  void** extra;
  CUkernel kernel;
  CUcontext context;
};

// CUevent_flags
constexpr uint32_t CU_EVENT_DISABLE_TIMING = 2;
// CUstream_flags
constexpr uint32_t CU_STREAM_NON_BLOCKING = 1;
// CUfunction_attribute
constexpr int32_t CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
// CUdevice_attribute
constexpr int32_t CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16;
constexpr int32_t CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75;
constexpr int32_t CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76;

// The functions in use. X(name, version, parameters): cuGetProcAddress gives the form that came
// with this version of CUDA.
#define HOSTJIT_FOR_EACH_CUDA_FUNCTION(X)                                                          \
  X(cuInit, 2000, (uint32_t flags))                                                                \
  X(cuDriverGetVersion, 2020, (int32_t* version))                                                  \
  X(cuGetErrorName, 6000, (CUresult error, const char** name))                                     \
  X(cuGetErrorString, 6000, (CUresult error, const char** text))                                   \
  X(cuDeviceGetCount, 2000, (int32_t* count))                                                      \
  X(cuDeviceGet, 2000, (CUdevice * device, int32_t ordinal))                                       \
  X(cuDeviceGetAttribute, 2000, (int32_t* value, int32_t attribute, CUdevice device))              \
  X(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device))                        \
  X(cuCtxGetCurrent, 4000, (CUcontext * context))                                                  \
  X(cuCtxSetCurrent, 4000, (CUcontext context))                                                    \
  X(cuCtxSynchronize, 2000, ())                                                                    \
  X(cuModuleLoadDataEx, 2010,                                                                      \
    (CUmodule * module, const void* image, uint32_t num_options, int32_t* options, void** values)) \
  X(cuModuleUnload, 2000, (CUmodule module))                                                       \
  X(cuModuleGetFunction, 2000, (CUfunction * function, CUmodule module, const char* name))         \
  X(cuFuncSetAttribute, 9000, (CUfunction function, int32_t attribute, int32_t value))             \
  X(cuFuncGetParamInfo, 12040, (CUfunction function, size_t index, size_t* offset, size_t* size))  \
  X(cuLaunchKernelEx, 11060,                                                                       \
    (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra))          \
  X(cuStreamCreate, 2000, (CUstream * stream, uint32_t flags))                                     \
  X(cuStreamDestroy, 4000, (CUstream stream))                                                      \
  X(cuStreamSynchronize, 2000, (CUstream stream))                                                  \
  X(cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, uint32_t flags))                     \
  X(cuEventCreate, 2000, (CUevent * event, uint32_t flags))                                        \
  X(cuEventDestroy, 4000, (CUevent event))                                                         \
  X(cuEventRecord, 2000, (CUevent event, CUstream stream))                                         \
  X(cuEventSynchronize, 2000, (CUevent event))                                                     \
  X(cuEventElapsedTime, 2000, (float* milliseconds, CUevent begin, CUevent end))                   \
  X(cuMemcpyAsync, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))        \
  X(cuMemsetD8Async, 3020, (CUdeviceptr to, uint8_t value, size_t bytes, CUstream stream))         \
  X(cuGraphCreate, 10000, (CUgraph * graph, uint32_t flags))                                       \
  X(cuGraphDestroy, 10000, (CUgraph graph))                                                        \
  X(cuGraphAddKernelNode, 12000,                                                                   \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* dependencies, size_t num_dependencies,  \
     const CUDA_KERNEL_NODE_PARAMS* parameters))                                                   \
  X(cuGraphInstantiateWithFlags, 11040, (CUgraphExec * exec, CUgraph graph, uint64_t flags))       \
  X(cuGraphExecKernelNodeSetParams, 12000,                                                         \
    (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters))               \
  X(cuGraphNodeSetEnabled, 11060, (CUgraphExec exec, CUgraphNode node, uint32_t enabled))          \
  X(cuStreamIsCapturing, 10000, (CUstream stream, int32_t* status))                                \
  X(cuGraphExecDestroy, 10000, (CUgraphExec exec))                                                 \
  X(cuGraphLaunch, 10000, (CUgraphExec exec, CUstream stream))

}  // namespace hostjit::cuda
