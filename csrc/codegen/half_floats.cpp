// SPDX-License-Identifier: Apache-2.0
#include "codegen/half_floats.h"

namespace hostjit {
namespace {

llvm::Type* with_scalar(const llvm::Value* value, llvm::Type* scalar) {
  return value->getType()->getWithNewType(scalar);
}

}  // namespace

llvm::Type* memory_type(llvm::LLVMContext& context, DType dtype) {
  if (dtype == DType::kBF16) return llvm::Type::getInt16Ty(context);
  if (dtype == DType::kF16) return llvm::Type::getHalfTy(context);
  return register_type(context, dtype);
}

llvm::Type* register_type(llvm::LLVMContext& context, DType dtype) {
  return dtype == DType::kF64 ? llvm::Type::getDoubleTy(context) : llvm::Type::getFloatTy(context);
}

llvm::Value* widen(llvm::IRBuilder<>& builder, llvm::Value* stored, DType dtype) {
  llvm::Type* f32 = with_scalar(stored, builder.getFloatTy());
  if (dtype == DType::kF16) return builder.CreateFPExt(stored, f32);
  if (dtype != DType::kBF16) return stored;
  llvm::Value* bits = builder.CreateZExt(stored, with_scalar(stored, builder.getInt32Ty()));
  return builder.CreateBitCast(builder.CreateShl(bits, 16), f32);
}

llvm::Value* narrow(llvm::IRBuilder<>& builder, llvm::Value* value, DType dtype) {
  if (dtype == DType::kF16) {
    return builder.CreateFPTrunc(value, with_scalar(value, builder.getHalfTy()));
  }
  if (dtype != DType::kBF16) return value;
  llvm::Type* i32 = with_scalar(value, builder.getInt32Ty());
  llvm::Value* bits = builder.CreateBitCast(value, i32);
  // Half of the last place that stays, less one bit unless that place is odd: ties go to even.
  llvm::Value* odd = builder.CreateAnd(builder.CreateLShr(bits, 16), 1);
  llvm::Value* bias = builder.CreateAdd(odd, llvm::ConstantInt::get(i32, 0x7FFF));
  llvm::Value* rounded = builder.CreateLShr(builder.CreateAdd(bits, bias), 16);
  llvm::Value* is_nan = builder.CreateFCmpUNO(value, value);
  llvm::Value* result = builder.CreateSelect(is_nan, llvm::ConstantInt::get(i32, 0x7FC0), rounded);
  return builder.CreateTrunc(result, with_scalar(value, builder.getInt16Ty()));
}

}  // namespace hostjit
