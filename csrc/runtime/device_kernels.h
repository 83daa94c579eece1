// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "runtime/abi.h"
#include "runtime/cuda_types.h"

namespace hostjit {

// The kernels of a program in the memory of its CUDA device, loaded when the first frame is made.
// Thread-safe.
class DeviceKernels {
 public:
  DeviceKernels() = default;
  ~DeviceKernels();
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  // What Frame::device_functions is: cuLaunchKernelEx, then the CUfunction of each kernel. The
  // device's context is the current one. Throws Error that names the kernel and what is wrong.
  void* const* load(const std::vector<DeviceKernelSpec>& kernels);

 private:
  cuda::CUfunction load_one(const DeviceKernelSpec& kernel);

  std::mutex mutex_;
  std::vector<cuda::CUmodule> modules_;
  std::vector<void*> table_;  // empty before the first load
};

// Lets a function ask for dynamic shared memory of so many bytes.
void allow_shared_memory(cuda::CUfunction function, int64_t bytes);

// Throws what PyTorch throws for an error of CUDA, an AcceleratorError: "CUDA error: an illegal
// memory access was encountered", and that the launch of `kernel` met it.
[[noreturn]] void throw_launch_error(const std::string& kernel, int32_t result);

}  // namespace hostjit
