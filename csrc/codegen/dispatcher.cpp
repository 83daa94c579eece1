// SPDX-License-Identifier: Apache-2.0
#include "codegen/dispatcher.h"

#include <llvm/IR/MDBuilder.h>

#include <cstddef>

#include "codegen/copy_plan.h"
#include "ir/visitor.h"

namespace hostjit {

Dispatcher::Dispatcher(const Program& program, const StoragePlan& storage, KernelLinker& kernels,
                       ProductKernels& products, llvm::Module& module)
    : program_(program),
      storage_(storage),
      kernels_(kernels),
      products_(products),
      module_(module),
      builder_(module.getContext()),
      entry_builder_(module.getContext()),
      pointer_(llvm::PointerType::getUnqual(module.getContext())) {
  const std::vector<std::byte>& constants = storage.layout().constants;
  if (constants.empty()) return;
  const llvm::ArrayRef<uint8_t> bytes(reinterpret_cast<const uint8_t*>(constants.data()),
                                      constants.size());
  llvm::Constant* initializer = llvm::ConstantDataArray::get(module.getContext(), bytes);
  constants_ =
      new llvm::GlobalVariable(module, initializer->getType(), /*isConstant=*/true,
                               llvm::GlobalValue::PrivateLinkage, initializer, "constants");
  constants_->setAlignment(llvm::Align(64));
}

void Dispatcher::emit_main(const std::string& symbol) {
  begin_function(symbol);
  emit_init_scalars();
  node_ = static_cast<int64_t>(program_.init().size());
  enter_streams();
  if (node_times_ == nullptr) fuse_epilogues();
  emit_body();
  leave_streams();
  release_behind_streams(/*first=*/0);
  emit_outputs();
  note_time(program_.body().size() + 2);
  read_device_times();
  end_function();
}

void Dispatcher::emit_init(const std::string& symbol) {
  begin_function(symbol);
  node_ = 0;
  emit_region(program_.init());
  end_function();
}

void Dispatcher::begin_function(const std::string& name) {
  llvm::LLVMContext& context = module_.getContext();
  function_ = llvm::Function::Create(
      llvm::FunctionType::get(builder_.getInt32Ty(), {builder_.getInt64Ty(), pointer_, pointer_},
                              /*isVarArg=*/false),
      llvm::GlobalValue::ExternalLinkage, name, module_);
  function_->setDoesNotThrow();
  function_->setUWTableKind(llvm::UWTableKind::Default);
  constexpr const char* kNames[] = {"cache_id", "inputs", "outputs"};
  for (llvm::Argument& argument : function_->args()) argument.setName(kNames[argument.getArgNo()]);
  cleanup_ = nullptr;
  frame_fields_.clear();
  input_fields_.clear();
  row_values_.clear();
  slot_data_.clear();
  scalars_.clear();
  live_slots_.clear();
  open_ranges_.clear();
  current_stream_ = 0;
  stream_numbers_.clear();

  auto* entry = llvm::BasicBlock::Create(context, "entry", function_);
  auto* body = llvm::BasicBlock::Create(context, "body", function_);
  builder_.SetInsertPoint(entry);
  entry_builder_.SetInsertPoint(builder_.CreateBr(body));
  builder_.SetInsertPoint(body);
  llvm::Value* slot = entry_builder_.CreateConstInBoundsGEP1_64(pointer_, function_->getArg(1), -1);
  auto* load = entry_builder_.CreateLoad(pointer_, slot, "frame");
  load->setMetadata(llvm::LLVMContext::MD_nonnull, llvm::MDNode::get(context, {}));
  frame_ = load;
  if (storage_.layout().device >= 0) begin_device();
}

void Dispatcher::end_function() {
  while (!live_slots_.empty()) release_slot(live_slots_.begin()->first);
  release_behind_streams(/*first=*/0);
  builder_.CreateRet(builder_.getInt32(0));
}

void Dispatcher::emit_region(const Region& region) {
  for (const auto& op : region) emit_op(*op);
}

void Dispatcher::emit_body() {
  note_time(0);
  note_time(1);
  size_t index = 2;
  for (const auto& op : program_.body()) {
    const llvm::BasicBlock* block = builder_.GetInsertBlock();
    const size_t length = block->size();
    note_device_time(*op, 2 * (index - 2));
    emit_op(*op);
    note_device_time(*op, 2 * (index - 2) + 1);
    const bool has_code = builder_.GetInsertBlock() != block || block->size() != length;
    if (has_code) note_time(index);
    ++index;
  }
}

void Dispatcher::emit_op(const Op& op) {
  visit_op(op, [&](const auto& payload) { emit(payload); });
  ++node_;
}

void Dispatcher::emit_init_scalars() {
  for (const auto& op : program_.init()) {
    if (const auto* size = op->get_if<Size>()) emit(*size);
    if (const auto* constant = op->get_if<IndexConstant>()) emit(*constant);
    if (const auto* constant = op->get_if<FloatConstant>()) emit(*constant);
    if (const auto* binary = op->get_if<IndexBinary>()) emit(*binary);
    ++node_;
  }
}

void Dispatcher::emit_outputs() {
  // What can fail comes first: outputs are set all or none.
  for (const OutputPlan& output : storage_.outputs()) {
    if (output.kind != OutputKind::kCopy) continue;
    call_fallible(Extern::hostjit_allocate, {frame_, integer(output.slot)});
    slot_made(output.slot, output.value);
    call_fallible(Extern::hostjit_copy, {frame_, header(output.value), slot_header(output.slot)});
  }
  for (size_t i = 0; i < storage_.outputs().size(); ++i) {
    const OutputPlan& output = storage_.outputs()[i];
    llvm::Value* target = address(function_->getArg(2), static_cast<int64_t>(i * sizeof(void*)));
    switch (output.kind) {
      case OutputKind::kInput:
        call(Extern::hostjit_return_tensor, {frame_, header(output.value), target});
        break;
      case OutputKind::kShareSlot:
        call(Extern::hostjit_return_tensor, {frame_, slot_header(output.slot), target});
        break;
      case OutputKind::kMoveSlot:
      case OutputKind::kCopy:
        call(Extern::hostjit_return_slot, {frame_, integer(output.slot), target});
        live_slots_.erase(output.slot);
        break;
      case OutputKind::kScalar: builder_.CreateStore(scalar(output.value), target); break;
    }
  }
}

llvm::CallInst* Dispatcher::call(Extern name, llvm::ArrayRef<llvm::Value*> arguments) {
  llvm::Function* callee = declare_extern(module_, name);
  llvm::CallInst* call = builder_.CreateCall(callee, arguments);
  call->setAttributes(callee->getAttributes());
  return call;
}

void Dispatcher::call_fallible(Extern name, llvm::ArrayRef<llvm::Value*> arguments) {
  note_node();
  llvm::Value* status = call(name, arguments);
  branch_to_cleanup_if(builder_.CreateICmpNE(status, builder_.getInt32(0)));
}

void Dispatcher::note_node() {
  builder_.CreateStore(integer(node_), address(frame_, offsetof(Frame, node)));
}

void Dispatcher::announce_write(const Value* value) {
  const Storage& storage = storage_.of(value);
  if (storage.base != MemoryBase::kInput && !storage.is_shared) return;
  call_fallible(Extern::hostjit_bump_version, {frame_, header(storage.root)});
}

void Dispatcher::branch_to_cleanup_if(llvm::Value* condition) {
  llvm::LLVMContext& context = module_.getContext();
  if (!cleanup_) {
    cleanup_ = llvm::BasicBlock::Create(context, "cleanup", function_);
    llvm::IRBuilder<> builder(cleanup_);
    builder.CreateCall(declare_extern(module_, Extern::hostjit_cleanup), {frame_});
    builder.CreateRet(builder.getInt32(1));
  }
  auto* next = llvm::BasicBlock::Create(context, "ok", function_, cleanup_);
  builder_.CreateCondBr(condition, cleanup_, next,
                        llvm::MDBuilder(context).createBranchWeights(1, 1 << 20));
  builder_.SetInsertPoint(next);
}

llvm::Value* Dispatcher::string_constant(std::string_view text) {
  return builder_.CreateGlobalString(llvm::StringRef(text.data(), text.size()), "text", 0,
                                     &module_);
}

void Dispatcher::emit_if(llvm::Value* condition, const std::function<void()>& then) {
  auto* inside = llvm::BasicBlock::Create(module_.getContext(), "then", function_);
  auto* after = llvm::BasicBlock::Create(module_.getContext(), "after", function_);
  builder_.CreateCondBr(condition, inside, after);
  builder_.SetInsertPoint(inside);
  then();
  builder_.CreateBr(after);
  builder_.SetInsertPoint(after);
}

void Dispatcher::emit_failure_if(llvm::Value* condition, const std::string& message) {
  emit_if(condition, [&] {
    note_node();
    call(Extern::hostjit_fail, {frame_, string_constant(message)});
  });
  branch_to_cleanup_if(condition);
}

void Dispatcher::slot_made(int64_t slot, const Value* root) {
  if (storage_.slot(slot).kind == SlotKind::kCall) live_slots_[slot] = root;
  slot_data_[slot] = load_slot_data(builder_, slot);
}

bool Dispatcher::is_made_by_code(int64_t slot) const {
  const SlotKind kind = storage_.slot(slot).kind;
  return kind == SlotKind::kCall || kind == SlotKind::kFrame;
}

llvm::Value* Dispatcher::load_slot_data(llvm::IRBuilder<>& builder, int64_t slot) {
  llvm::Value* array = frame_field(offsetof(Frame, slot_data), pointer_, "slot_data");
  return builder.CreateLoad(pointer_, builder.CreateConstInBoundsGEP1_64(pointer_, array, slot),
                            "data");
}

void Dispatcher::release_slot(int64_t slot) {
  if (live_slots_.erase(slot) == 0) return;
  if (graph_words_ && !uses_streams()) return released_with_graph_.push_back(slot);
  if (uses_streams()) return released_behind_streams_.push_back(slot);
  call(Extern::hostjit_release, {frame_, integer(slot)});
}

}  // namespace hostjit
