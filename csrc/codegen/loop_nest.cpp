// SPDX-License-Identifier: Apache-2.0
#include "codegen/loop_nest.h"

#include "support/check.h"

namespace hostjit {

void emit_loop(llvm::IRBuilder<>& builder, int64_t count,
               const std::function<void(llvm::Value* index)>& body) {
  if (count <= 0) return;
  if (count == 1) {
    body(builder.getInt64(0));
    return;
  }
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
  builder.CreateCondBr(builder.CreateICmpULT(next, builder.getInt64(count)), loop, after);
  builder.SetInsertPoint(after);
}

void emit_loop_nest(llvm::IRBuilder<>& builder, const std::vector<int64_t>& sizes,
                    const std::function<void(const std::vector<llvm::Value*>& indices)>& body) {
  for (const int64_t size : sizes) {
    if (size == 0) return;
  }
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
  HOSTJIT_ICHECK(indices.size() == strides.size(), "an index per stride");
  llvm::Value* offset = builder.getInt64(0);
  for (size_t i = 0; i < indices.size(); ++i) {
    if (strides[i] == 0) continue;
    llvm::Value* step = builder.CreateNSWMul(indices[i], builder.getInt64(strides[i] * bytes));
    offset = builder.CreateNSWAdd(offset, step);
  }
  return builder.CreateInBoundsGEP(builder.getInt8Ty(), base, offset);
}

}  // namespace hostjit
