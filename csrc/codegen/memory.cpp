// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "codegen/copy_plan.h"
#include "codegen/dispatcher.h"
#include "codegen/literal_bytes.h"
#include "codegen/loop_nest.h"

namespace hostjit {
namespace {

// The strides of `type` for indices over `rank` dims, aligned at the right; 0 where it broadcasts.
std::vector<int64_t> broadcast_strides(const TensorType& type, size_t rank) {
  const std::vector<int64_t> sizes = type.sizes();
  const std::vector<int64_t> strides = type.static_strides();
  std::vector<int64_t> result(rank, 0);
  const size_t missing = rank - sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1) result[missing + i] = strides[i];
  }
  return result;
}

llvm::Align element_alignment(DType dtype) {
  return llvm::Align(static_cast<uint64_t>(size_in_bytes(dtype)));
}

}  // namespace

void Dispatcher::emit(const Allocate& op) {
  if (storage_.of(op.result).base != MemoryBase::kSlot) return;
  const int64_t slot = storage_.slot_of(op.result);
  call_fallible(Extern::hostjit_allocate, {frame_, integer(slot)});
  slot_made(slot, op.result);
}

void Dispatcher::emit(const Deallocate& op) {
  if (!storage_.has_memory(op.buffer)) return;
  // Views keep the memory alive: they go with it.
  const Value* root = storage_.of(op.buffer).root;
  const auto live_slots = live_slots_;
  for (const auto& [slot, owner] : live_slots) {
    if (owner == root) release_slot(slot);
  }
}

void Dispatcher::emit(const Copy& op) {
  const CopyKind kind = plan_copy(op.source->tensor_type(), storage_.of(op.source),
                                  op.out->tensor_type(), storage_.of(op.out));
  switch (kind) {
    case CopyKind::kNothing: break;
    case CopyKind::kBytes:
      announce_write(op.out);
      builder_.CreateMemCpy(data(op.out), alignment(op.out), data(op.source), alignment(op.source),
                            static_cast<uint64_t>(storage_.of(op.out).extent));
      break;
    case CopyKind::kLoops:
      announce_write(op.out);
      emit_copy_loops(op);
      break;
    case CopyKind::kLibrary:
      call_fallible(Extern::hostjit_copy, {frame_, header(op.source), header(op.out)});
      break;
  }
}

void Dispatcher::emit_copy_loops(const Copy& op) {
  const TensorType& out = op.out->tensor_type();
  const std::vector<int64_t> sizes = out.sizes();
  const int64_t bytes = size_in_bytes(out.dtype);
  llvm::Type* element = builder_.getIntNTy(static_cast<unsigned>(8 * bytes));
  llvm::Value* from = data(op.source);
  llvm::Value* to = data(op.out);
  const std::vector<int64_t> from_strides =
      broadcast_strides(op.source->tensor_type(), sizes.size());
  const std::vector<int64_t> to_strides = out.static_strides();
  emit_loop_nest(builder_, sizes, [&](const std::vector<llvm::Value*>& indices) {
    llvm::Value* source = element_address(builder_, from, indices, from_strides, bytes);
    llvm::Value* target = element_address(builder_, to, indices, to_strides, bytes);
    builder_.CreateAlignedStore(
        builder_.CreateAlignedLoad(element, source, element_alignment(out.dtype)), target,
        element_alignment(out.dtype));
  });
}

void Dispatcher::emit(const Fill& op) {
  const TensorType& out = op.out->tensor_type();
  if (out.num_elements() == 0) return;
  announce_write(op.out);
  const std::vector<std::byte> bytes = literal_bytes(op.value, out.dtype);
  const bool is_one_byte = std::ranges::all_of(bytes, [&](std::byte b) { return b == bytes[0]; });
  if (out.is_contiguous() && is_one_byte) {
    builder_.CreateMemSet(data(op.out), builder_.getInt8(static_cast<uint8_t>(bytes[0])),
                          static_cast<uint64_t>(storage_.of(op.out).extent), alignment(op.out));
    return;
  }
  llvm::APInt bits(static_cast<unsigned>(8 * bytes.size()), 0);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bits.insertBits(static_cast<uint64_t>(bytes[i]), static_cast<unsigned>(8 * i), 8);
  }
  llvm::Value* to = data(op.out);
  const std::vector<int64_t> strides = out.static_strides();
  emit_loop_nest(builder_, out.sizes(), [&](const std::vector<llvm::Value*>& indices) {
    builder_.CreateAlignedStore(
        builder_.getInt(bits),
        element_address(builder_, to, indices, strides, size_in_bytes(out.dtype)),
        element_alignment(out.dtype));
  });
}

// Constants are laid out by the storage plan.
void Dispatcher::emit(const Constant&) {}

}  // namespace hostjit
