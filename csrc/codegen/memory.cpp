// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "codegen/copy_plan.h"
#include "codegen/dispatcher.h"
#include "codegen/half_floats.h"
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

// Copies of more elements are functions of their own, which copies of equal shapes share: the
// patches of a convolution are many. The call is nothing beside such a copy.
constexpr int64_t kMostInlinedCopy = 256;

// The loops of a copy between memories apart.
struct CopyLoops {
  explicit CopyLoops(const Copy& op)
      : sizes(op.out->tensor_type().sizes()),
        source_strides(broadcast_strides(op.source->tensor_type(), sizes.size())),
        out_strides(op.out->tensor_type().static_strides()),
        dtype(op.out->tensor_type().dtype) {}

  void emit(llvm::IRBuilder<>& builder, llvm::Value* source, llvm::Value* out) const {
    const int64_t bytes = size_in_bytes(dtype);
    llvm::Type* element = builder.getIntNTy(static_cast<unsigned>(8 * bytes));
    emit_loop_nest(builder, sizes, [&](const std::vector<llvm::Value*>& indices) {
      llvm::Value* from = element_address(builder, source, indices, source_strides, bytes);
      llvm::Value* to = element_address(builder, out, indices, out_strides, bytes);
      builder.CreateAlignedStore(builder.CreateAlignedLoad(element, from, element_alignment(dtype)),
                                 to, element_alignment(dtype));
    });
  }

  std::vector<int64_t> sizes;
  std::vector<int64_t> source_strides;
  std::vector<int64_t> out_strides;
  DType dtype;
};

// void(ptr source, ptr out)
llvm::Function* copy_function(llvm::Module& module, const CopyLoops& loops) {
  std::string name = concat(module.getName().str(), ".copy.", size_in_bytes(loops.dtype));
  for (const auto* numbers : {&loops.sizes, &loops.source_strides, &loops.out_strides}) {
    name += '.';
    for (const int64_t number : *numbers) name += concat(number, "_");
  }
  if (llvm::Function* function = module.getFunction(name)) return function;
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* pointer = llvm::PointerType::getUnqual(context);
  auto* function = llvm::Function::Create(
      llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer, pointer},
                              /*isVarArg=*/false),
      llvm::GlobalValue::InternalLinkage, name, module);
  function->setUWTableKind(llvm::UWTableKind::Default);
  function->addParamAttr(1, llvm::Attribute::NoAlias);
  mark_kernel(*function);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "entry", function));
  loops.emit(builder, function->getArg(0), function->getArg(1));
  builder.CreateRetVoid();
  return function;
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
  const bool runs_later = graph_words_ != nullptr || uses_streams();
  if (storage_.of(op.buffer).base == MemoryBase::kInput && !runs_later) {
    call(Extern::hostjit_release_input, {frame_, integer(storage_.of(op.buffer).index)});
  }
}

void Dispatcher::emit(const Copy& op) {
  const CopyKind kind = plan_copy(op.source->tensor_type(), storage_.of(op.source),
                                  op.out->tensor_type(), storage_.of(op.out));
  if (!op.hidden_from_autograd) announce_write(op.out);  // of no elements too, as eager does
  switch (kind) {
    case CopyKind::kNothing: break;
    case CopyKind::kBytes:
      builder_.CreateMemCpy(data(op.out), alignment(op.out), data(op.source), alignment(op.source),
                            num_bytes(op.out->tensor_type()));
      break;
    case CopyKind::kLoops: emit_copy_loops(op); break;
    case CopyKind::kLibrary:
      call_fallible(Extern::hostjit_copy, {frame_, header(op.source), header(op.out)});
      break;
    case CopyKind::kBySize: emit_copy_by_size(op); break;
  }
}

void Dispatcher::emit_copy_loops(const Copy& op) {
  const CopyLoops loops(op);
  if (op.out->tensor_type().num_elements() <= kMostInlinedCopy) {
    loops.emit(builder_, data(op.source), data(op.out));
  } else {
    builder_.CreateCall(copy_function(module_, loops), {data(op.source), data(op.out)});
  }
}

void Dispatcher::emit_copy_by_size(const Copy& op) {
  const TensorType& source = op.source->tensor_type();
  const TensorType& out = op.out->tensor_type();
  llvm::Value* is_large =
      builder_.CreateICmpSGT(num_elements(out), integer(most_elements_of_loops(source, out)));
  emit_if_else(
      builder_, is_large,
      [&] { call_fallible(Extern::hostjit_copy, {frame_, header(op.source), header(op.out)}); },
      [&] {
        const int64_t bytes = size_in_bytes(out.dtype);
        llvm::Type* element = builder_.getIntNTy(static_cast<unsigned>(8 * bytes));
        const std::vector<llvm::Value*> source_strides = broadcast_strides(source, out);
        const std::vector<llvm::Value*> out_strides = strides(out);
        emit_loop_nest(builder_, sizes(out), [&](const std::vector<llvm::Value*>& indices) {
          llvm::Value* from =
              strided_address(builder_, data(op.source), indices, source_strides, bytes);
          llvm::Value* to = strided_address(builder_, data(op.out), indices, out_strides, bytes);
          llvm::Value* value =
              builder_.CreateAlignedLoad(element, from, element_alignment(out.dtype));
          builder_.CreateAlignedStore(value, to, element_alignment(out.dtype));
        });
      });
}

std::vector<llvm::Value*> Dispatcher::broadcast_strides(const TensorType& type,
                                                        const TensorType& out) {
  std::vector<llvm::Value*> result(out.dims.size(), integer(0));
  const size_t missing = out.dims.size() - type.dims.size();
  const std::vector<llvm::Value*> steps = strides(type);
  for (size_t i = 0; i < steps.size(); ++i) {
    const Dim& size = type.dims[i];
    if (size == Dim(1)) continue;
    const bool is_same = size.is_constant() || size == out.dims[missing + i];
    // Another symbol may be 1, and broadcast.
    result[missing + i] = is_same
                              ? steps[i]
                              : builder_.CreateSelect(builder_.CreateICmpEQ(dim(size), integer(1)),
                                                      integer(0), steps[i]);
  }
  return result;
}

void Dispatcher::emit(const Fill& op) {
  const TensorType& out = op.out->tensor_type();
  if (std::ranges::find(out.dims, Dim(0)) != out.dims.end()) return;
  announce_write(op.out);
  const std::vector<std::byte> bytes = literal_bytes(op.value, out.dtype);
  const bool is_one_byte = std::ranges::all_of(bytes, [&](std::byte b) { return b == bytes[0]; });
  if (out.is_contiguous() && is_one_byte) {
    builder_.CreateMemSet(data(op.out), builder_.getInt8(static_cast<uint8_t>(bytes[0])),
                          num_bytes(out), alignment(op.out));
    return;
  }
  llvm::APInt bits(static_cast<unsigned>(8 * bytes.size()), 0);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bits.insertBits(static_cast<uint64_t>(bytes[i]), static_cast<unsigned>(8 * i), 8);
  }
  llvm::Value* to = data(op.out);
  const std::vector<llvm::Value*> steps = strides(out);
  emit_loop_nest(builder_, sizes(out), [&](const std::vector<llvm::Value*>& indices) {
    builder_.CreateAlignedStore(
        builder_.getInt(bits),
        strided_address(builder_, to, indices, steps, size_in_bytes(out.dtype)),
        element_alignment(out.dtype));
  });
}

// Constants are laid out by the storage plan.
void Dispatcher::emit(const Constant&) {}

void Dispatcher::emit(const Item& op) {
  const DType dtype = op.source->tensor_type().dtype;
  llvm::Value* from = data(op.source);
  const auto load = [&](llvm::Type* type) {
    return builder_.CreateAlignedLoad(type, from, alignment(op.source), op.result->name());
  };
  llvm::Value*& number = scalars_[op.result];
  if (is_floating_point(dtype)) {
    llvm::Value* stored = load(memory_type(module_.getContext(), dtype));
    number = builder_.CreateFPExt(widen(builder_, stored, dtype), builder_.getDoubleTy());
  } else if (dtype == DType::kBool) {
    number = builder_.CreateZExt(load_bool(from), builder_.getInt64Ty());
  } else {
    const auto bits = static_cast<unsigned>(8 * size_in_bytes(dtype));
    llvm::Value* stored = load(builder_.getIntNTy(bits));
    const bool is_unsigned = dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kU32;
    number = is_unsigned ? builder_.CreateZExt(stored, builder_.getInt64Ty())
                         : builder_.CreateSExt(stored, builder_.getInt64Ty());
  }
}

}  // namespace hostjit
