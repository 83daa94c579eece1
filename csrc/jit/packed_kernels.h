// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>

#include "ir/program.h"
#include "jit/session.h"
#include "runtime/abi.h"

namespace hostjit {

// The kernels that a program launches on the CPU, each as a function by itself.
struct LoadedKernels {
  std::optional<LoadedCode> code;  // none without kernels
  std::map<std::string, PackedKernel> kernels;
};

// Compiles and loads them. Takes the session. Throws as CompiledModule::compile does.
LoadedKernels load_packed_kernels(const Program& program);

}  // namespace hostjit
