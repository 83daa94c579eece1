// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace hostjit {

// Emits `for i in [0, count)` at the builder and leaves it after the loop. `body` gets i as i64.
// A loop of one step is no loop.
void emit_loop(llvm::IRBuilder<>& builder, int64_t count,
               const std::function<void(llvm::Value* index)>& body);

// The same for a count that may be known only when the code runs; a negative one is none.
void emit_loop(llvm::IRBuilder<>& builder, llvm::Value* count,
               const std::function<void(llvm::Value* index)>& body);

// Nested loops over `sizes`, the last innermost.
void emit_loop_nest(llvm::IRBuilder<>& builder, const std::vector<llvm::Value*>& sizes,
                    const std::function<void(const std::vector<llvm::Value*>& indices)>& body);
void emit_loop_nest(llvm::IRBuilder<>& builder, const std::vector<int64_t>& sizes,
                    const std::function<void(const std::vector<llvm::Value*>& indices)>& body);

// Emits both branches and leaves the builder where they meet.
void emit_if_else(llvm::IRBuilder<>& builder, llvm::Value* condition,
                  const std::function<void()>& if_true, const std::function<void()>& if_false);

// base + the sum of index * stride elements of `bytes` each.
llvm::Value* element_address(llvm::IRBuilder<>& builder, llvm::Value* base,
                             const std::vector<llvm::Value*>& indices,
                             const std::vector<int64_t>& strides, int64_t bytes);
// The same with strides that may be known only when the code runs.
llvm::Value* strided_address(llvm::IRBuilder<>& builder, llvm::Value* base,
                             const std::vector<llvm::Value*>& indices,
                             const std::vector<llvm::Value*>& strides, int64_t bytes);

}  // namespace hostjit
