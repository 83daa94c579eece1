// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>

namespace hostjit {

// Emits `body` so that its arithmetic takes and gives zeros for denormals, by the bits of MXCSR
// that say so, which it sets and restores. `body` computes with nothing but what it loads, and
// stores all results: memory orders its arithmetic between the two. x86 only.
void emit_flushing_denormals(llvm::IRBuilder<>& builder, const std::function<void()>& body);

}  // namespace hostjit
