// SPDX-License-Identifier: Apache-2.0
#include "runtime/torch_symbols.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace hostjit {

void* find_torch_symbol(const std::string& name) {
  void* symbol = nullptr;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &info) != 0 &&
      info.dli_fname != nullptr) {
    if (void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
      symbol = dlsym(library, name.c_str());
      dlclose(library);
    }
  }
  return symbol != nullptr ? symbol : dlsym(RTLD_DEFAULT, name.c_str());
}

}  // namespace hostjit
