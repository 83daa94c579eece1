// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/program.h"

namespace llvm {
class Function;
class Module;
}  // namespace llvm

namespace hostjit {

// Kernels are optimised by themselves, and not inlined before somebody decides so.
bool is_kernel(const llvm::Function& function);
void mark_kernel(llvm::Function& function);

// Whether generated code calls a kernel where it is in the process, by a symbol that the linker of
// the JIT resolves. The symbol is the same in every process.
bool is_external(const Kernel& kernel);
std::string external_symbol(const Kernel& kernel);

// The kernels of a program as internal functions of one module. Kernels whose texts are equal up to
// their names are one function.
class KernelLinker {
 public:
  KernelLinker(const Program& program, llvm::Module& module);

  // The function of the kernel that `launch` names, linked in at the first request: its parameters
  // are those of its signature, or else the operands; a range of items follows. Throws Error
  // that names the kernel when its text is malformed or its parameters do not fit the launch.
  llvm::Function* get(const LaunchKernel& launch);

  // The form of a kernel for launches where some outputs are inputs, the same function at every
  // such request. `pairs`: the parameters of each output and of the input that it is. That of the
  // output goes unused, so that LLVM knows that there is one pointer.
  llvm::Function* get_in_place(llvm::Function* kernel,
                               const std::vector<std::pair<unsigned, unsigned>>& pairs);

  // The form of a kernel that does elements [begin, end) of [0, count), its last two parameters;
  // begin < end. null unless the kernel is one loop that reads and writes parameter `operand`, of
  // which nothing else is said, only where its counter is.
  llvm::Function* get_range(llvm::Function* kernel, unsigned operand, int64_t count);

  // Removes the kernels that no code calls.
  void drop_unused();

 private:
  llvm::Function* add(const Kernel& kernel, const LaunchKernel& launch);
  llvm::Function* link(const Kernel& kernel);
  llvm::Function* declare(const Kernel& kernel, const LaunchKernel& launch);

  const Program& program_;
  llvm::Module& module_;
  std::map<std::string, llvm::Function*> functions_;  // by name
  std::map<std::string, llvm::Function*> by_content_;
  std::map<std::string, llvm::Function*> forms_;  // in place and of ranges, by symbol
};

}  // namespace hostjit
