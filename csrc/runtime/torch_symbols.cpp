// SPDX-License-Identifier: Apache-2.0
#include "runtime/torch_symbols.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace hostjit {

namespace {

// The library of PyTorch's operators, or null. Asking which library an address is in means a look
// at each of its symbols: milliseconds.
void* torch_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &info) == 0) return nullptr;
  return info.dli_fname != nullptr ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
}

}  // namespace

void* find_torch_symbol(const std::string& name) {
  static void* const kLibrary = torch_library();  // stays open, as it does anyway
  void* symbol = kLibrary != nullptr ? dlsym(kLibrary, name.c_str()) : nullptr;
  return symbol != nullptr ? symbol : dlsym(RTLD_DEFAULT, name.c_str());
}

}  // namespace hostjit
