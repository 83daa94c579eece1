// SPDX-License-Identifier: Apache-2.0
#include "evaluator/device_launch.h"

#include <algorithm>

#include "evaluator/launch_parameters.h"
#include "runtime/device_kernels.h"
#include "runtime/device_launch.h"
#include "runtime/program_state.h"

namespace hostjit {
namespace {

cuda::LaunchShape shape_of(const LaunchKernel& op) {
  cuda::LaunchShape shape;
  const auto size = [](const Dim& dim) { return static_cast<uint32_t>(dim.value); };
  std::ranges::transform(op.grid, shape.grid, size);
  std::ranges::transform(op.block, shape.block, size);
  std::ranges::copy(op.cluster, shape.cluster);
  shape.shared_memory = static_cast<uint32_t>(op.shared_memory);
  shape.cooperative = op.cooperative;
  shape.programmatic = op.programmatic;
  return shape;
}

}  // namespace

void launch_on_device(Frame* frame, const LaunchKernel& op, const Kernel& kernel, void* stream,
                      ValueTable& values) {
  if (std::ranges::any_of(op.grid, [](const Dim& size) { return size.value <= 0; })) return;
  std::vector<uint64_t> bits = parameter_bits(op, kernel, values);
  std::vector<void*> parameters;
  parameters.reserve(bits.size());
  for (uint64_t& word : bits) parameters.push_back(&word);
  const std::vector<DeviceKernelSpec>& kernels = frame->program->layout().device_kernels;
  const auto found = std::ranges::find(kernels, op.kernel, &DeviceKernelSpec::name);
  HOSTJIT_ICHECK(found != kernels.end(), "kernel '", op.kernel, "' was not loaded");
  void* function = frame->device_functions[1 + (found - kernels.begin())];
  const cuda::CUresult result =
      cuda::launch(static_cast<cuda::CUfunction>(function), shape_of(op),
                   static_cast<cuda::CUstream>(stream), parameters.data());
  if (result != cuda::CUDA_SUCCESS) throw_launch_error(op.kernel, result);
}

}  // namespace hostjit
