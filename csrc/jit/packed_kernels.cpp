// SPDX-License-Identifier: Apache-2.0
#include "jit/packed_kernels.h"

#include <mutex>

#include "codegen/codegen.h"
#include "jit/compile_context.h"
#include "jit/kernel_libraries.h"

namespace hostjit {

LoadedKernels load_packed_kernels(const Program& program) {
  JitSession& session = JitSession::instance();
  const std::lock_guard lock(session.mutex());
  CompileContext context(program.name());
  const PackedKernelsResult result =
      generate_packed_kernels(program, context.get(), session.target().codegen_options());
  context.check();
  LoadedKernels loaded;
  if (result.symbols.empty()) return loaded;
  session.target().optimize(*result.module);
  std::vector<std::string> symbols;
  symbols.reserve(result.symbols.size());
  for (const auto& [kernel, symbol] : result.symbols) symbols.push_back(symbol);
  const llvm::SmallVector<char, 0> object = session.target().emit_object(*result.module);
  context.check();
  loaded.code = session.link({std::string(object.data(), object.size())},
                             program.name() + ".kernels", symbols, external_functions(program));
  for (const auto& [kernel, symbol] : result.symbols) {
    loaded.kernels[kernel] = reinterpret_cast<PackedKernel>(loaded.code->find(symbol));
  }
  return loaded;
}

}  // namespace hostjit
