// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/vector_math.h"

namespace hostjit {

// Those of `candidates` that libtorch_cpu exports, one of each lane count.
std::vector<VectorMathVariant> available_variants(const std::vector<VectorMathVariant>& candidates);

// Addresses of every symbol that generated code may name: externs, the memory functions of libc
// that LLVM calls, scalar math, and `variants`.
std::map<std::string, void*> symbol_addresses(const std::vector<VectorMathVariant>& variants);

}  // namespace hostjit
