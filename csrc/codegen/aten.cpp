// SPDX-License-Identifier: Apache-2.0
#include "codegen/dispatcher.h"

namespace hostjit {

void Dispatcher::emit(const AtenCall& op) {
  std::vector<llvm::Value*> operands;
  for (const auto* values : {&op.inputs, &op.mutated}) {
    for (const Value* value : *values) {
      operands.push_back(value->is_tensor() ? header(value) : scalar_in_memory(value));
    }
  }
  auto* array_type = llvm::ArrayType::get(pointer_, operands.size());
  llvm::Value* array = entry_builder_.CreateAlloca(array_type);
  for (size_t i = 0; i < operands.size(); ++i) {
    builder_.CreateStore(operands[i], address(array, static_cast<int64_t>(i * sizeof(void*))));
  }
  call_fallible(Extern::hostjit_aten_call, {frame_, integer(storage_.aten_call_of(op)), array});
  for (const Value* result : op.results) {
    const int64_t slot = storage_.slot_of(result);
    if (slot >= 0) slot_made(slot, result);
  }
}

llvm::Value* Dispatcher::scalar_in_memory(const Value* value) {
  llvm::Value* number = scalar(value);
  llvm::Value* memory = entry_builder_.CreateAlloca(number->getType(), nullptr, value->name());
  builder_.CreateStore(number, memory);
  return memory;
}

}  // namespace hostjit
