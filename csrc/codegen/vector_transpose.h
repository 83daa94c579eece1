// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <vector>

// Square blocks of as many vectors as a vector has lanes, of 32 or 64 bit floats in registers of at
// least 128 bits. The shuffles stay inside 128 bits or move 128 bits as a whole: both are one
// instruction without an index vector on x86.

namespace hostjit {

// Result i has element i of every vector.
std::vector<llvm::Value*> transpose(llvm::IRBuilder<>& builder, std::vector<llvm::Value*> vectors);

// Element i of the result is the sum of the elements of vectors[i]: a transpose that adds.
llvm::Value* sum_each(llvm::IRBuilder<>& builder, std::vector<llvm::Value*> vectors);

}  // namespace hostjit
