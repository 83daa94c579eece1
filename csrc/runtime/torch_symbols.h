// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hostjit {

// The address of a symbol of libtorch_cpu or a library that it depends on, else of any in the
// process; nullptr when there is none. The process may hold another BLAS or OpenMP with the same
// names and other threads.
void* find_torch_symbol(const std::string& name);

template <class Function>
Function find_in_torch(const std::string& name) {
  return reinterpret_cast<Function>(find_torch_symbol(name));
}

}  // namespace hostjit
