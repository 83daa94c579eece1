// SPDX-License-Identifier: Apache-2.0
#include "evaluator/device_launch.h"

#include <algorithm>
#include <bit>

#include "runtime/cuda_driver.h"
#include "runtime/device_kernels.h"
#include "runtime/program_state.h"

namespace hostjit {
namespace {

using cuda::CUlaunchAttribute;
using cuda::CUlaunchConfig;

// The bits of a parameter, the lowest first as the machine has them.
uint64_t parameter_bits(const Value* operand, ParameterType type, ValueTable& values) {
  switch (type) {
    case ParameterType::kPointer:
      return reinterpret_cast<uint64_t>(
          values.tensor(operand).unsafeGetTensorImpl()->mutable_data());
    case ParameterType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(std::get<double>(values.get(operand))));
    case ParameterType::kF64: return std::bit_cast<uint64_t>(std::get<double>(values.get(operand)));
    case ParameterType::kI8:
    case ParameterType::kI16:
    case ParameterType::kI32:
    case ParameterType::kI64: return static_cast<uint64_t>(values.index(operand));
  }
  HOSTJIT_ICHECK(false, "no such type of a parameter");
}

std::vector<CUlaunchAttribute> launch_attributes(const LaunchKernel& op) {
  std::vector<CUlaunchAttribute> attributes;
  const auto add = [&](int32_t id) -> CUlaunchAttribute& {
    attributes.push_back({id, 0, {}});
    return attributes.back();
  };
  if (op.cooperative) add(cuda::CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.number = 1;
  if (!op.cluster.empty()) {
    CUlaunchAttribute& cluster = add(cuda::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    for (size_t i = 0; i < 3; ++i) {
      cluster.value.cluster_dim[i] = static_cast<uint32_t>(op.cluster[i]);
    }
  }
  if (op.programmatic) {
    add(cuda::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).value.number = 1;
  }
  return attributes;
}

}  // namespace

void launch_on_device(Frame* frame, const LaunchKernel& op, const Kernel& kernel, void* stream,
                      ValueTable& values) {
  if (std::ranges::any_of(op.grid, [](const Dim& size) { return size.value <= 0; })) return;
  const std::vector<Value*> operands = op.parameter_operands();
  std::vector<uint64_t> bits(operands.size());
  std::vector<void*> parameters(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    bits[i] = parameter_bits(operands[i], kernel.parameters[i], values);
    parameters[i] = &bits[i];
  }
  std::vector<CUlaunchAttribute> attributes = launch_attributes(op);
  CUlaunchConfig config{{1, 1, 1},
                        {1, 1, 1},
                        static_cast<uint32_t>(op.shared_memory),
                        static_cast<cuda::CUstream>(stream),
                        attributes.data(),
                        static_cast<uint32_t>(attributes.size())};
  for (size_t i = 0; i < op.grid.size(); ++i)
    config.grid[i] = static_cast<uint32_t>(op.grid[i].value);
  for (size_t i = 0; i < op.block.size(); ++i) {
    config.block[i] = static_cast<uint32_t>(op.block[i].value);
  }
  const std::vector<DeviceKernelSpec>& kernels = frame->program->layout().device_kernels;
  const auto found = std::ranges::find(kernels, op.kernel, &DeviceKernelSpec::name);
  HOSTJIT_ICHECK(found != kernels.end(), "kernel '", op.kernel, "' was not loaded");
  using Launch = decltype(cuda::Driver::cuLaunchKernelEx);
  const auto launch = reinterpret_cast<Launch>(frame->device_functions[0]);
  void* function = frame->device_functions[1 + (found - kernels.begin())];
  const cuda::CUresult result =
      launch(&config, static_cast<cuda::CUfunction>(function), parameters.data(), nullptr);
  if (result != cuda::CUDA_SUCCESS) throw_launch_error(op.kernel, result);
}

}  // namespace hostjit
