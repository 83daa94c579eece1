// SPDX-License-Identifier: Apache-2.0
#include "jit/kernel_libraries.h"

#include <dlfcn.h>

#include "codegen/kernel_linker.h"
#include "support/check.h"

namespace hostjit {
namespace {

void* find_function(const Kernel& kernel) {
  // Names of functions in two libraries may be the same, so they stay local.
  void* library = dlopen(kernel.text.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  HOSTJIT_CHECK(library != nullptr, "kernel '", kernel.name, "': ", dlerror());
  void* function = dlsym(library, kernel.entry.c_str());
  HOSTJIT_CHECK(function != nullptr, "kernel '", kernel.name, "': ", dlerror());
  return function;
}

}  // namespace

std::map<std::string, void*> external_functions(const Program& program) {
  std::map<std::string, void*> functions;
  for (const auto& [name, kernel] : program.kernels()) {
    if (!is_external(kernel)) continue;
    functions[external_symbol(kernel)] = is_address(kernel.language)
                                             ? reinterpret_cast<void*>(function_address(kernel))
                                             : find_function(kernel);
  }
  return functions;
}

}  // namespace hostjit
