// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "support/dtype.h"

// bf16 and f16 exist only in memory: what is loaded is widened to f32, computed on in f32, and
// rounded to nearest even when it is stored. bf16 is moved as 16 bits: the conversions are integer
// arithmetic, because the conversion instruction flushes denormals.

namespace hostjit {

inline bool is_half_float(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

// Of an element in memory and in a register; f32 and f64 are the same in both.
llvm::Type* memory_type(llvm::LLVMContext& context, DType dtype);
llvm::Type* register_type(llvm::LLVMContext& context, DType dtype);

// Converts a scalar or a vector of one type to the other.
llvm::Value* widen(llvm::IRBuilder<>& builder, llvm::Value* stored, DType dtype);
llvm::Value* narrow(llvm::IRBuilder<>& builder, llvm::Value* value, DType dtype);

}  // namespace hostjit
