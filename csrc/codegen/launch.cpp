// SPDX-License-Identifier: Apache-2.0
#include <llvm/IR/Constants.h>

#include <algorithm>

#include "codegen/dispatcher.h"
#include "codegen/epilogues.h"
#include "codegen/product_means.h"
#include "codegen/typed_kernel.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

// No memory has so many items.
constexpr int64_t kMoreThanAny = 1LL << 48U;

// Whether a range of items may be divided: one thread gets at least a block.
bool is_worth_threads(const LaunchKernel& op) {
  if (op.block.empty()) return true;
  const Dim& items = op.grid[0];
  const Dim& grain = op.block[0];
  if (grain.is_constant() && grain.value >= kMoreThanAny) return false;
  if (!items.is_constant() || !grain.is_constant()) return items != grain;
  return items.value / grain.value >= 2;
}

}  // namespace

void Dispatcher::fuse_epilogues() {
  for (const Epilogue& found : find_epilogues(program_, storage_)) {
    const LaunchKernel& launch = *found.launch;
    if (has_signature(program_.kernels().at(launch.kernel))) continue;
    std::optional<Product> product;
    visit_op(*found.product, [&](const auto& op) {
      if constexpr (requires { describe(op); }) product = describe(op);
    });
    if (!product || means_of(*product, storage_) != ProductMeans::kGenerated) continue;
    const unsigned output = static_cast<unsigned>(launch.inputs.size());
    llvm::Function* kernel = kernels_.get_in_place(kernels_.get(launch), {{output, found.operand}});
    llvm::Function* epilogue = kernels_.get_range(kernel, found.operand, product->n);
    llvm::Function* function =
        epilogue ? products_.get(*product, {epilogue, found.operand}) : nullptr;
    if (!function) continue;
    made_later_.insert(product->out.value);
    fused_[found.launch] = {*product, function};
  }
}

// The product, and the launch right behind each part of it.
void Dispatcher::emit_fused(const Fused& fused, std::vector<llvm::Value*> operands) {
  const Product& product = fused.product;
  std::vector<llvm::Value*> arguments = {
      data(product.lhs.value), data(product.rhs.value), data(product.out.value),
      product.addend ? data(product.addend->value) : llvm::Constant::getNullValue(pointer_)};
  arguments.insert(arguments.end(), operands.begin(), operands.end());
  builder_.CreateCall(fused.function, arguments);
}

void Dispatcher::emit(const LaunchKernel& op) {
  if (is_cuda(program_.kernels().at(op.kernel).language)) return emit_device_launch(op);
  std::vector<llvm::Value*> arguments = kernel_arguments(op);
  for (const Value* operand : op.in_out) announce_write(operand);
  for (const Value* operand : op.outputs) announce_write(operand);
  const auto fused = fused_.find(&op);
  if (fused != fused_.end()) return emit_fused(fused->second, arguments);
  llvm::Value* failure = op.errors.empty() ? nullptr : make_failure_record();
  if (failure) arguments.push_back(failure);
  llvm::Function* kernel = kernels_.get(op);
  const InPlaceOperands in_place = operands_in_place(op);
  if (!in_place.empty()) kernel = kernels_.get_in_place(kernel, in_place);
  if (op.grid.empty()) {
    builder_.CreateCall(kernel, arguments);
  } else {
    llvm::Value* items = dim(op.grid[0]);
    const auto launch = [&] {
      if (!is_worth_threads(op)) {
        arguments.insert(arguments.end(), {integer(0), items});
        builder_.CreateCall(kernel, arguments);
        return;
      }
      emit_parallel_call(kernel, arguments, items,
                         op.block.empty() ? integer(1) : dim(op.block[0]));
    };
    const auto* known = llvm::dyn_cast<llvm::ConstantInt>(items);
    if (known && !known->isZero()) launch();
    if (!known) emit_if(builder_.CreateICmpSGT(items, integer(0)), launch);
  }
  if (failure) check_failure_record(op, failure);
  note_launch(op, kernel, in_place);
}

std::vector<llvm::Value*> Dispatcher::kernel_arguments(const LaunchKernel& op) {
  const Kernel& kernel = program_.kernels().at(op.kernel);
  const std::vector<Value*> operands = op.parameter_operands();
  std::vector<llvm::Value*> arguments;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (has_signature(kernel)) {
      arguments.push_back(parameter_value(operands[i], kernel, i));
    } else {
      arguments.push_back(operands[i]->is_tensor() ? data(operands[i]) : scalar(operands[i]));
    }
  }
  return arguments;
}

llvm::Value* Dispatcher::parameter_value(const Value* operand, const Kernel& kernel,
                                         size_t parameter) {
  const ParameterType type = kernel.parameters[parameter];
  if (type == ParameterType::kPointer) return data(operand);
  llvm::Value* value = scalar(operand);
  llvm::Type* target = type_of(type, module_.getContext());
  if (!target->isIntegerTy()) return builder_.CreateFPTrunc(value, target);
  llvm::Value* narrow = builder_.CreateTrunc(value, target);
  if (narrow == value) return value;
  // A number fits signed or unsigned.
  llvm::Value* is_lost = builder_.CreateAnd(
      builder_.CreateICmpNE(builder_.CreateSExt(narrow, value->getType()), value),
      builder_.CreateICmpNE(builder_.CreateZExt(narrow, value->getType()), value));
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(is_lost);
  if (known && known->isZero()) return narrow;
  emit_if(is_lost, [&] {
    note_node();
    call(Extern::hostjit_fail_parameter,
         {frame_, string_constant(kernel.name), integer(static_cast<int64_t>(parameter)), value});
  });
  branch_to_cleanup_if(is_lost);
  return narrow;
}

Dispatcher::InPlaceOperands Dispatcher::operands_in_place(const LaunchKernel& op) const {
  InPlaceOperands result;
  const size_t first_output = op.inputs.size() + op.in_out.size();
  for (size_t i = 0; i < op.in_place.size(); i += 2) {
    const auto input = static_cast<unsigned>(op.in_place[i]);
    const auto output = static_cast<unsigned>(op.in_place[i + 1]);
    const Storage& read = storage_.of(op.inputs[input]);
    const Storage& written = storage_.of(op.outputs[output]);
    const bool is_same = read.base == MemoryBase::kArena && written.base == MemoryBase::kArena &&
                         read.block == written.block && read.offset == written.offset &&
                         read.terms.empty() && written.terms.empty() && read.extent != 0;
    if (is_same) result.emplace_back(static_cast<unsigned>(first_output) + output, input);
  }
  return result;
}

llvm::Value* Dispatcher::make_failure_record() {
  llvm::Value* record = entry_builder_.CreateAlloca(llvm::ArrayType::get(builder_.getInt64Ty(), 2),
                                                    nullptr, "failure");
  builder_.CreateStore(integer(0), record);
  return record;
}

void Dispatcher::check_failure_record(const LaunchKernel& op, llvm::Value* record) {
  llvm::Value* number = builder_.CreateLoad(builder_.getInt64Ty(), record, "failed");
  llvm::Value* failed = builder_.CreateICmpNE(number, integer(0));
  emit_if(failed, [&] {
    note_node();
    llvm::Value* error = string_constant(op.errors[0]);
    for (size_t i = 1; i < op.errors.size(); ++i) {
      llvm::Value* is_this = builder_.CreateICmpEQ(number, integer(static_cast<int64_t>(i + 1)));
      error = builder_.CreateSelect(is_this, string_constant(op.errors[i]), error);
    }
    llvm::Value* value =
        builder_.CreateLoad(builder_.getInt64Ty(), address(record, sizeof(int64_t)), "value");
    call(Extern::hostjit_fail_kernel, {frame_, error, value});
  });
  branch_to_cleanup_if(failed);
}

// What a kernel writes is noalias when that is so at every launch: inlining turns that into the
// scopes that spare the vectoriser its checks.
void Dispatcher::note_launch(const LaunchKernel& op, llvm::Function* kernel,
                             const InPlaceOperands& in_place) {
  std::vector<const Value*> operands;  // null: no memory
  std::vector<bool> is_written;
  for (const Value* operand : op.parameter_operands()) {
    operands.push_back(operand->is_tensor() ? operand : nullptr);
    is_written.push_back(operand->is_tensor() &&
                         std::ranges::find(op.inputs, operand) == op.inputs.end());
  }
  for (const auto& [output, input] : in_place) {
    is_written[input] = true;
    operands[output] = nullptr;  // not used by the kernel
  }
  std::vector<bool>& is_apart = kernel_operands_apart_[kernel];
  is_apart.resize(operands.size(), true);
  for (size_t written = 0; written < operands.size(); ++written) {
    is_apart[written] = is_apart[written] && is_written[written];
    for (size_t other = 0; is_apart[written] && other < operands.size(); ++other) {
      if (!operands[written] || !operands[other] || other == written) continue;
      is_apart[written] =
          !may_overlap(storage_.of(operands[written]), storage_.of(operands[other]));
    }
  }
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
