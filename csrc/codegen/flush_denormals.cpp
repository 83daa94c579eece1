// SPDX-License-Identifier: Apache-2.0
#include "codegen/flush_denormals.h"

#include <llvm/IR/IntrinsicsX86.h>

namespace hostjit {

void emit_flushing_denormals(llvm::IRBuilder<>& builder, const std::function<void()>& body) {
  constexpr uint32_t kFlushToZero = 1 << 15;
  constexpr uint32_t kDenormalsAreZero = 1 << 6;
  llvm::Type* word = builder.getInt32Ty();
  llvm::Value* before = builder.CreateAlloca(word, nullptr, "mxcsr");
  llvm::Value* during = builder.CreateAlloca(word, nullptr, "mxcsr.flushing");
  builder.CreateIntrinsic(llvm::Intrinsic::x86_sse_stmxcsr, {}, {before});
  llvm::Value* bits = builder.CreateLoad(word, before);
  builder.CreateStore(builder.CreateOr(bits, kFlushToZero | kDenormalsAreZero), during);
  builder.CreateIntrinsic(llvm::Intrinsic::x86_sse_ldmxcsr, {}, {during});
  body();
  builder.CreateIntrinsic(llvm::Intrinsic::x86_sse_ldmxcsr, {}, {before});
}

}  // namespace hostjit
