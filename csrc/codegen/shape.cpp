// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "codegen/dispatcher.h"

namespace hostjit {

// A view is an offset that its users fold; only a header over memory of the call costs something.
void Dispatcher::emit(const View& op) { emit_view_header(op.result); }

void Dispatcher::emit(const Select& op) {
  llvm::Value* size = dim(op.source->tensor_type().dims[0]);
  llvm::Value* is_outside = builder_.CreateICmpUGE(scalar(op.index), size);
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(is_outside);
  if (!known || known->isOne()) emit_failure_if(is_outside, std::string(Select::kOutOfRange));
  emit_view_header(op.result);
}

void Dispatcher::emit_view_header(const Value* view) {
  const int64_t slot = storage_.slot_of(view);
  if (slot < 0 || !is_made_by_code(slot)) return;
  const Storage& storage = storage_.of(view);
  llvm::Value* bytes = integer(size_in_bytes(view->tensor_type().dtype));
  llvm::Value* behind_root = builder_.CreateSub(offset(storage), offset(storage_.of(storage.root)));
  llvm::Value* elements = builder_.CreateExactSDiv(behind_root, bytes);
  call_fallible(Extern::hostjit_view, {frame_, header(storage.root), elements, integer(slot)});
  slot_made(slot, storage.root);
}

void Dispatcher::emit(const Size& op) {
  scalars_[op.result] = dim(op.source->tensor_type().dims[static_cast<size_t>(op.dim)]);
}

void Dispatcher::emit(const IndexConstant& op) { scalars_[op.result] = integer(op.value); }

void Dispatcher::emit(const FloatConstant& op) {
  scalars_[op.result] = llvm::ConstantFP::get(builder_.getDoubleTy(), op.value);
}

void Dispatcher::emit(const IndexBinary& op) {
  // What a row has computed needs no code.
  if (storage_.is_symbolic() && storage_.symbols().find(op.result->name())) {
    scalars_[op.result] = dim(Dim::make_symbol(op.result->name()));
    return;
  }
  llvm::Value* lhs = scalar(op.lhs);
  llvm::Value* rhs = scalar(op.rhs);
  llvm::Value* zero = integer(0);
  const auto check_divisor = [&] {
    llvm::Value* is_zero = builder_.CreateICmpEQ(rhs, zero);
    if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(is_zero); known && known->isZero()) {
      return;
    }
    emit_failure_if(is_zero, concat("index_binary: ", to_string(op.operation), " by zero"));
  };
  // Division by -1 overflows for one dividend, and traps; the negation wraps.
  struct Quotient {
    llvm::Value* is_negation;
    llvm::Value* quotient;
    llvm::Value* remainder;
  };
  const auto divide = [&]() -> Quotient {
    llvm::Value* is_negation = builder_.CreateICmpEQ(rhs, integer(-1));
    llvm::Value* divisor = builder_.CreateSelect(is_negation, integer(1), rhs);
    return {is_negation, builder_.CreateSDiv(lhs, divisor), builder_.CreateSRem(lhs, divisor)};
  };
  const auto signs_differ = [&] {
    return builder_.CreateICmpSLT(builder_.CreateXor(lhs, rhs), zero);
  };
  // Quotient rounded towards zero, moved by `step` when it is inexact and `condition` holds.
  const auto rounded = [&](const Quotient& q, llvm::Value* condition, bool upwards) {
    llvm::Value* is_inexact = builder_.CreateICmpNE(q.remainder, zero);
    llvm::Value* step =
        builder_.CreateZExt(builder_.CreateAnd(is_inexact, condition), builder_.getInt64Ty());
    llvm::Value* result =
        upwards ? builder_.CreateAdd(q.quotient, step) : builder_.CreateSub(q.quotient, step);
    return builder_.CreateSelect(q.is_negation, builder_.CreateNeg(lhs), result);
  };
  llvm::Value* result = nullptr;
  switch (op.operation) {
    case IndexOperation::kAdd: result = builder_.CreateAdd(lhs, rhs); break;
    case IndexOperation::kSub: result = builder_.CreateSub(lhs, rhs); break;
    case IndexOperation::kMul: result = builder_.CreateMul(lhs, rhs); break;
    case IndexOperation::kFloorDiv:
      check_divisor();
      result = rounded(divide(), signs_differ(), /*upwards=*/false);
      break;
    case IndexOperation::kCeilDiv:
      check_divisor();
      result = rounded(divide(), builder_.CreateNot(signs_differ()), /*upwards=*/true);
      break;
    case IndexOperation::kMod: {
      check_divisor();
      const Quotient q = divide();
      llvm::Value* adjust =
          builder_.CreateAnd(builder_.CreateICmpNE(q.remainder, zero), signs_differ());
      result = builder_.CreateSelect(adjust, builder_.CreateAdd(q.remainder, rhs), q.remainder);
      result = builder_.CreateSelect(q.is_negation, zero, result);
      break;
    }
    case IndexOperation::kMin:
      result = builder_.CreateSelect(builder_.CreateICmpSLT(lhs, rhs), lhs, rhs);
      break;
    case IndexOperation::kMax:
      result = builder_.CreateSelect(builder_.CreateICmpSGT(lhs, rhs), lhs, rhs);
      break;
  }
  scalars_[op.result] = result;
}

}  // namespace hostjit
