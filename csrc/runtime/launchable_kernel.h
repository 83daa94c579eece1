// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "runtime/abi.h"
#include "runtime/device_kernels.h"
#include "runtime/device_launch.h"

namespace hostjit {

// A kernel that is launched by itself, outside of any program; loaded on each device at the first
// launch there. Thread-safe.
class LaunchableKernel {
 public:
  explicit LaunchableKernel(DeviceKernelSpec spec) : spec_(std::move(spec)) {}

  // Launches the kernel on PyTorch's current stream of a device; a grid with a size of 0 does not
  // run. The words of `parameters` begin with the bytes of one each. Throws Error, and what
  // throw_launch_error throws.
  void launch(int32_t device, const cuda::LaunchShape& shape, std::vector<uint64_t> parameters);

 private:
  struct Loaded {
    DeviceKernels kernels;
    int64_t shared_memory = 0;  // the most that was asked for
  };
  cuda::CUfunction function_on(int32_t device, int64_t shared_memory);

  const DeviceKernelSpec spec_;
  std::mutex mutex_;
  std::map<int32_t, Loaded> loaded_;
};

}  // namespace hostjit
