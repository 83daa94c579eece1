// SPDX-License-Identifier: Apache-2.0
// Loops and branches. Blocks of a region lie between those of the op around it.
#include "codegen/dispatcher.h"

namespace hostjit {

void Dispatcher::emit(const For& op) {
  llvm::Value* begin = scalar(op.begin);
  llvm::Value* end = scalar(op.end);
  // As For::num_iterations counts.
  llvm::Value* distance = builder_.CreateSub(builder_.CreateSub(end, begin), integer(1));
  llvm::Value* last = builder_.CreateUDiv(distance, integer(op.step), "last");
  llvm::BasicBlock* body = make_block("for");
  llvm::BasicBlock* after = make_block("for.end");
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  builder_.CreateCondBr(builder_.CreateICmpSLT(begin, end), body, after);

  builder_.SetInsertPoint(body);
  llvm::PHINode* iteration = builder_.CreatePHI(builder_.getInt64Ty(), 2, "iteration");
  llvm::PHINode* index = builder_.CreatePHI(builder_.getInt64Ty(), 2, op.index->name());
  iteration->addIncoming(integer(0), before);
  index->addIncoming(begin, before);
  scalars_[op.index] = index;
  emit_nested(*op.body);
  llvm::BasicBlock* latch = builder_.GetInsertBlock();
  iteration->addIncoming(builder_.CreateAdd(iteration, integer(1)), latch);
  index->addIncoming(builder_.CreateAdd(index, integer(op.step)), latch);
  builder_.CreateCondBr(builder_.CreateICmpULT(iteration, last), body, after);
  builder_.SetInsertPoint(after);
}

void Dispatcher::emit(const While& op) {
  llvm::Value* condition = data(op.condition);
  llvm::BasicBlock* test = make_block("while");
  llvm::BasicBlock* body = make_block("while.body");
  llvm::BasicBlock* after = make_block("while.end");
  builder_.CreateBr(test);
  builder_.SetInsertPoint(test);
  builder_.CreateCondBr(load_bool(condition), body, after);
  builder_.SetInsertPoint(body);
  emit_nested(*op.body);
  builder_.CreateBr(test);
  builder_.SetInsertPoint(after);
}

void Dispatcher::emit(const If& op) {
  llvm::BasicBlock* then = make_block("then");
  llvm::BasicBlock* otherwise = make_block("else");
  llvm::BasicBlock* after = make_block("if.end");
  builder_.CreateCondBr(load_bool(data(op.condition)), then, otherwise);
  builder_.SetInsertPoint(then);
  emit_nested(*op.then);
  builder_.CreateBr(after);
  builder_.SetInsertPoint(otherwise);
  emit_nested(*op.otherwise);
  builder_.CreateBr(after);
  builder_.SetInsertPoint(after);
}

void Dispatcher::emit_nested(const Region& region) {
  const auto slots_outside = live_slots_;
  const auto slot_data_outside = slot_data_;
  const int64_t stream_outside = current_stream_;
  const size_t num_released = released_behind_streams_.size();
  ++node_;
  emit_region(region);
  --node_;
  const auto made = live_slots_;
  for (const auto& [slot, root] : made) {
    if (!slots_outside.contains(slot)) release_slot(slot);
  }
  slot_data_ = slot_data_outside;
  set_stream(stream_outside);
  if (released_behind_streams_.size() > num_released) {
    call_fallible(Extern::hostjit_join_streams, {frame_});
    release_behind_streams(num_released);
  }
}

llvm::Value* Dispatcher::load_bool(llvm::Value* address) {
  return builder_.CreateICmpNE(builder_.CreateLoad(builder_.getInt8Ty(), address),
                               builder_.getInt8(0));
}

llvm::BasicBlock* Dispatcher::make_block(const char* name) {
  return llvm::BasicBlock::Create(module_.getContext(), name, function_);
}

}  // namespace hostjit
