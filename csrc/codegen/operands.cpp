// SPDX-License-Identifier: Apache-2.0
// Where a function finds the values of its program.
#include <llvm/IR/Constants.h>

#include <cstddef>

#include "codegen/dispatcher.h"

namespace hostjit {

llvm::Value* Dispatcher::frame_field(size_t offset, llvm::Type* type, const char* name) {
  llvm::Value*& field = frame_fields_[offset];
  if (field) return field;
  auto* load = entry_builder_.CreateLoad(
      type, entry_builder_.CreateConstInBoundsGEP1_64(entry_builder_.getInt8Ty(), frame_, offset),
      name);
  load->setMetadata(llvm::LLVMContext::MD_invariant_load,
                    llvm::MDNode::get(module_.getContext(), {}));
  return field = load;
}

llvm::Value* Dispatcher::input_field(int64_t index, size_t offset, llvm::Type* type) {
  llvm::Value*& field = input_fields_[{index, offset}];
  if (field) return field;
  const auto load_invariant = [&](llvm::Type* loaded, llvm::Value* from, const std::string& name) {
    auto* load = entry_builder_.CreateLoad(loaded, from, name);
    load->setMetadata(llvm::LLVMContext::MD_invariant_load,
                      llvm::MDNode::get(module_.getContext(), {}));
    return load;
  };
  constexpr size_t kPointerItself = ~size_t{0};
  llvm::Value*& input = input_fields_[{index, kPointerItself}];
  const std::string& name = program_.inputs()[index]->name();
  if (!input) {
    llvm::Value* slot =
        entry_builder_.CreateConstInBoundsGEP1_64(pointer_, function_->getArg(1), index);
    input = load_invariant(pointer_, slot, name);
  }
  llvm::Value* from =
      entry_builder_.CreateConstInBoundsGEP1_64(entry_builder_.getInt8Ty(), input, offset);
  return input_fields_[{index, offset}] = load_invariant(type, from, name + ".field");
}

llvm::Value* Dispatcher::row_value(size_t index) {
  llvm::Value*& value = row_values_[index];
  if (value) return value;
  llvm::Value* row = frame_field(offsetof(Frame, row), pointer_, "row");
  llvm::Type* type = entry_builder_.getInt64Ty();
  auto* load = entry_builder_.CreateLoad(
      type, entry_builder_.CreateConstInBoundsGEP1_64(type, row, index), "row.value");
  load->setMetadata(llvm::LLVMContext::MD_invariant_load,
                    llvm::MDNode::get(module_.getContext(), {}));
  return value = load;
}

llvm::Value* Dispatcher::data(const Value* value) {
  const Storage& storage = storage_.of(value);
  const auto address_of = [&](llvm::Value* base) {
    llvm::Value* bytes = offset(storage);
    const auto* known = llvm::dyn_cast<llvm::ConstantInt>(bytes);
    if (known) return address(base, known->getSExtValue());
    // Not in bounds where nothing is: an empty view may begin anywhere.
    return builder_.CreateGEP(builder_.getInt8Ty(), base, bytes);
  };
  switch (storage.base) {
    case MemoryBase::kInput:
      return address_of(input_field(storage.index, offsetof(TensorArg, data), pointer_));
    case MemoryBase::kArena:
      return address_of(frame_field(offsetof(Frame, arena), pointer_, "arena"));
    case MemoryBase::kDeviceArena: return address_of(device_arena_);
    case MemoryBase::kConstant: return address_of(constants_);
    case MemoryBase::kSlot: {
      llvm::Value*& base = slot_data_[storage.index];
      if (!base) {
        HOSTJIT_ICHECK(storage_.slot(storage.index).kind == SlotKind::kFrame, "%", value->name(),
                       " is used but not made");
        base = load_slot_data(entry_builder_, storage.index);
      }
      return address_of(base);
    }
  }
  HOSTJIT_ICHECK(false, "no such memory base");
}

llvm::Value* Dispatcher::header(const Value* value) {
  const int64_t slot = storage_.slot_of(value);
  if (slot >= 0) return slot_header(slot);
  const Storage& storage = storage_.of(value);
  HOSTJIT_ICHECK(storage.base == MemoryBase::kInput && storage.root == value, "%", value->name(),
                 " has no tensor header");
  return input_field(storage.index, offsetof(TensorArg, tensor), pointer_);
}

llvm::Value* Dispatcher::slot_header(int64_t slot) {
  // An at::Tensor is one pointer wide.
  return address(frame_field(offsetof(Frame, slots), pointer_, "slots"),
                 slot * static_cast<int64_t>(sizeof(void*)));
}

llvm::Value* Dispatcher::scalar(const Value* value) {
  const auto found = scalars_.find(value);
  if (found != scalars_.end()) return found->second;
  for (size_t i = 0; i < program_.inputs().size(); ++i) {
    if (program_.inputs()[i] != value) continue;
    llvm::Type* type = std::holds_alternative<F64Type>(value->type()) ? builder_.getDoubleTy()
                                                                      : builder_.getInt64Ty();
    return scalars_[value] = input_field(static_cast<int64_t>(i), 0, type);
  }
  HOSTJIT_ICHECK(false, "scalar %", value->name(), " is used but not made");
}

llvm::Value* Dispatcher::integer(int64_t value) { return builder_.getInt64(value); }

llvm::Value* Dispatcher::address(llvm::Value* base, int64_t bytes) {
  if (bytes == 0) return base;
  return builder_.CreateConstInBoundsGEP1_64(builder_.getInt8Ty(), base, bytes);
}

llvm::Align Dispatcher::alignment(const Value* value) const {
  const Storage& storage = storage_.of(value);
  const auto element = static_cast<uint64_t>(size_in_bytes(value->tensor_type().dtype));
  uint64_t base = element;
  if (storage.base == MemoryBase::kArena) {
    base = static_cast<uint64_t>(storage_.layout().alignment);
  } else if (storage.base == MemoryBase::kDeviceArena) {
    base = static_cast<uint64_t>(storage_.device_alignment());
  } else if (storage.base == MemoryBase::kConstant) {
    base = 64;
  }
  llvm::Align result =
      llvm::commonAlignment(llvm::Align(base), static_cast<uint64_t>(storage.offset));
  for (const Storage::Term& term : storage.terms) {
    result = llvm::commonAlignment(result, static_cast<uint64_t>(term.bytes));
  }
  return result;
}

}  // namespace hostjit
