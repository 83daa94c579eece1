// SPDX-License-Identifier: Apache-2.0
#include "codegen/loop_nest.h"

#include <algorithm>

#include "support/check.h"

namespace hostjit {
namespace {

// One round at least.
void emit_rounds(llvm::IRBuilder<>& builder, llvm::Value* count,
                 const std::function<void(llvm::Value* index)>& body) {
  llvm::BasicBlock* before = builder.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* loop = llvm::BasicBlock::Create(builder.getContext(), "loop", function);
  builder.CreateBr(loop);
  builder.SetInsertPoint(loop);
  llvm::PHINode* index = builder.CreatePHI(builder.getInt64Ty(), 2, "i");
  index->addIncoming(builder.getInt64(0), before);
  body(index);
  llvm::Value* next = builder.CreateAdd(index, builder.getInt64(1), "next", /*HasNUW=*/true,
                                        /*HasNSW=*/true);
  index->addIncoming(next, builder.GetInsertBlock());
  auto* after = llvm::BasicBlock::Create(builder.getContext(), "after", function);
  builder.CreateCondBr(builder.CreateICmpULT(next, count), loop, after);
  builder.SetInsertPoint(after);
}

llvm::Value* stride_in_bytes(llvm::IRBuilder<>& builder, llvm::Value* stride, int64_t bytes) {
  return builder.CreateNSWMul(stride, builder.getInt64(bytes));
}

std::vector<llvm::Value*> constants(llvm::IRBuilder<>& builder,
                                    const std::vector<int64_t>& numbers) {
  std::vector<llvm::Value*> values;
  values.reserve(numbers.size());
  for (const int64_t number : numbers) values.push_back(builder.getInt64(number));
  return values;
}

bool is_zero(const llvm::Value* value) {
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(value);
  return known && known->isZero();
}

}  // namespace

void emit_loop(llvm::IRBuilder<>& builder, int64_t count,
               const std::function<void(llvm::Value* index)>& body) {
  if (count <= 0) return;
  if (count == 1) {
    body(builder.getInt64(0));
    return;
  }
  emit_rounds(builder, builder.getInt64(count), body);
}

void emit_loop(llvm::IRBuilder<>& builder, llvm::Value* count,
               const std::function<void(llvm::Value* index)>& body) {
  if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(count)) {
    return emit_loop(builder, known->getSExtValue(), body);
  }
  llvm::Value* is_any = builder.CreateICmpSGT(count, builder.getInt64(0));
  emit_if_else(builder, is_any, [&] { emit_rounds(builder, count, body); }, [] {});
}

void emit_loop_nest(llvm::IRBuilder<>& builder, const std::vector<int64_t>& sizes,
                    const std::function<void(const std::vector<llvm::Value*>& indices)>& body) {
  emit_loop_nest(builder, constants(builder, sizes), body);
}

void emit_loop_nest(llvm::IRBuilder<>& builder, const std::vector<llvm::Value*>& sizes,
                    const std::function<void(const std::vector<llvm::Value*>& indices)>& body) {
  if (std::ranges::any_of(sizes, is_zero)) return;
  std::vector<llvm::Value*> indices;
  const std::function<void()> emit_dim = [&] {
    if (indices.size() == sizes.size()) {
      body(indices);
      return;
    }
    emit_loop(builder, sizes[indices.size()], [&](llvm::Value* index) {
      indices.push_back(index);
      emit_dim();
      indices.pop_back();
    });
  };
  emit_dim();
}

void emit_if_else(llvm::IRBuilder<>& builder, llvm::Value* condition,
                  const std::function<void()>& if_true, const std::function<void()>& if_false) {
  llvm::LLVMContext& context = builder.getContext();
  llvm::Function* function = builder.GetInsertBlock()->getParent();
  auto* true_block = llvm::BasicBlock::Create(context, "if.true", function);
  auto* false_block = llvm::BasicBlock::Create(context, "if.false", function);
  auto* done = llvm::BasicBlock::Create(context, "if.done", function);
  builder.CreateCondBr(condition, true_block, false_block);
  builder.SetInsertPoint(true_block);
  if_true();
  builder.CreateBr(done);
  builder.SetInsertPoint(false_block);
  if_false();
  builder.CreateBr(done);
  builder.SetInsertPoint(done);
}

llvm::Value* element_address(llvm::IRBuilder<>& builder, llvm::Value* base,
                             const std::vector<llvm::Value*>& indices,
                             const std::vector<int64_t>& strides, int64_t bytes) {
  return strided_address(builder, base, indices, constants(builder, strides), bytes);
}

llvm::Value* strided_address(llvm::IRBuilder<>& builder, llvm::Value* base,
                             const std::vector<llvm::Value*>& indices,
                             const std::vector<llvm::Value*>& strides, int64_t bytes) {
  HOSTJIT_ICHECK(indices.size() == strides.size(), "an index per stride");
  llvm::Value* offset = builder.getInt64(0);
  for (size_t i = 0; i < indices.size(); ++i) {
    if (is_zero(strides[i])) continue;
    llvm::Value* step =
        builder.CreateNSWMul(indices[i], stride_in_bytes(builder, strides[i], bytes));
    offset = builder.CreateNSWAdd(offset, step);
  }
  return builder.CreateInBoundsGEP(builder.getInt8Ty(), base, offset);
}

}  // namespace hostjit
