// SPDX-License-Identifier: Apache-2.0
#include "codegen/dispatcher.h"

namespace hostjit {

void Dispatcher::emit(const LaunchKernel& op) {
  std::vector<llvm::Value*> arguments;
  for (const auto* operands : {&op.inputs, &op.in_out, &op.outputs}) {
    for (const Value* operand : *operands) {
      HOSTJIT_CHECK(operand->tensor_type().device.type == DeviceType::kCPU, "launch_kernel '",
                    op.kernel, "': %", operand->name(), " is on ",
                    to_string(operand->tensor_type().device), ", expected cpu");
      arguments.push_back(data(operand));
    }
  }
  for (const Value* operand : op.in_out) announce_write(operand);
  for (const Value* operand : op.outputs) announce_write(operand);
  for (const Value* operand : op.scalars) arguments.push_back(scalar(operand));
  llvm::Function* kernel = kernels_.get(op);
  if (op.grid.empty()) {
    builder_.CreateCall(kernel, arguments);
  } else {
    emit_parallel_call(kernel, arguments, op.grid[0], op.block.empty() ? 1 : op.block[0]);
  }
  note_launch(op);
}

// What a kernel writes is noalias when that is so at every launch: inlining turns that into the
// scopes that spare the vectoriser its checks.
void Dispatcher::note_launch(const LaunchKernel& op) {
  std::vector<const Value*> operands(op.inputs.begin(), op.inputs.end());
  operands.insert(operands.end(), op.in_out.begin(), op.in_out.end());
  operands.insert(operands.end(), op.outputs.begin(), op.outputs.end());
  std::vector<bool>& is_apart = kernel_operands_apart_[kernels_.get(op)];
  is_apart.resize(operands.size(), true);
  for (size_t written = op.inputs.size(); written < operands.size(); ++written) {
    for (size_t other = 0; other < operands.size(); ++other) {
      if (other != written &&
          may_overlap(storage_.of(operands[written]), storage_.of(operands[other]))) {
        is_apart[written] = false;
      }
    }
  }
  for (size_t i = 0; i < op.inputs.size(); ++i) is_apart[i] = false;
}

void Dispatcher::mark_kernel_operands() {
  for (const auto& [kernel, is_apart] : kernel_operands_apart_) {
    for (size_t i = 0; i < is_apart.size(); ++i) {
      const auto position = static_cast<unsigned>(i);
      if (is_apart[i]) kernel->addParamAttr(position, llvm::Attribute::NoAlias);
      kernel->addParamAttr(position, llvm::Attribute::NoUndef);
    }
  }
}

}  // namespace hostjit
