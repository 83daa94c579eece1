// SPDX-License-Identifier: Apache-2.0
#include "evaluator/launch_parameters.h"

#include "runtime/kernel_error.h"

namespace hostjit {
namespace {

// The bits of a parameter, the lowest first as the machine has them.
uint64_t bits_of(const Value* operand, const Kernel& kernel, size_t parameter, ValueTable& values) {
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

}  // namespace

std::vector<uint64_t> parameter_bits(const LaunchKernel& op, const Kernel& kernel,
                                     ValueTable& values) {
  const std::vector<Value*> operands = op.parameter_operands();
  std::vector<uint64_t> bits(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) bits[i] = bits_of(operands[i], kernel, i, values);
  return bits;
}

}  // namespace hostjit
