// SPDX-License-Identifier: Apache-2.0
#include "evaluator/device_launch.h"

#include <algorithm>

#include "runtime/device_kernels.h"
#include "runtime/device_launch.h"
#include "runtime/program_state.h"

namespace hostjit {
namespace {

// The bits of a parameter, the lowest first as the machine has them.
uint64_t parameter_bits(const Value* operand, const Kernel& kernel, size_t parameter,
                        ValueTable& values) {
  switch (const ParameterType type = kernel.parameters[parameter]) {
    case ParameterType::kPointer:
      return reinterpret_cast<uint64_t>(
          values.tensor(operand).unsafeGetTensorImpl()->mutable_data());
    case ParameterType::kF32:
    case ParameterType::kF64: return float_bits(std::get<double>(values.get(operand)), type);
    case ParameterType::kI8:
    case ParameterType::kI16:
    case ParameterType::kI32:
    case ParameterType::kI64: {
      const int64_t value = values.index(operand);
      if (!holds(type, value)) {
        throw_parameter_error(kernel.name, static_cast<int64_t>(parameter), value);
      }
      return static_cast<uint64_t>(value);
    }
  }
  HOSTJIT_ICHECK(false, "no such type of a parameter");
}

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
  const std::vector<Value*> operands = op.parameter_operands();
  std::vector<uint64_t> bits(operands.size());
  std::vector<void*> parameters(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    bits[i] = parameter_bits(operands[i], kernel, i, values);
    parameters[i] = &bits[i];
  }
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
