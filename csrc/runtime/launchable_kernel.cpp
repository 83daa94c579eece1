// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchable_kernel.h"

#include <algorithm>

#include "runtime/cuda_device.h"
#include "support/check.h"

namespace hostjit {
namespace {

// Makes a device and its context the calling thread's for a while.
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t device) : before_(cuda::current_device()) {
    if (before_ != device) cuda::set_current_device(device);
    cuda::require_context(device);
  }
  ~CurrentDevice() {
    if (cuda::current_device() != before_) cuda::set_current_device(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const int32_t before_;
};

}  // namespace

cuda::CUfunction LaunchableKernel::function_on(int32_t device, int64_t shared_memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Loaded& loaded = loaded_[device];
  auto* function = static_cast<cuda::CUfunction>(loaded.kernels.load({spec_})[1]);
  if (shared_memory > loaded.shared_memory) {
    allow_shared_memory(function, shared_memory);
    loaded.shared_memory = shared_memory;
  }
  return function;
}

void LaunchableKernel::launch(int32_t device, const cuda::LaunchShape& shape,
                              std::vector<uint64_t> parameters) {
  if (std::ranges::any_of(shape.grid, [](uint32_t size) { return size == 0; })) return;
  HOSTJIT_ICHECK(parameters.size() == spec_.parameter_bytes.size(), "kernel '", spec_.name,
                 "': has other parameters");
  std::vector<void*> addresses(parameters.size());
  std::ranges::transform(parameters, addresses.begin(), [](uint64_t& word) { return &word; });
  const CurrentDevice scope(device);
  const cuda::CUresult result = cuda::launch(function_on(device, shape.shared_memory), shape,
                                             cuda::current_stream(device), addresses.data());
  if (result != cuda::CUDA_SUCCESS) throw_launch_error(spec_.name, result);
}

}  // namespace hostjit
