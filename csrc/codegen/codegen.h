// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/DataLayout.h>
#include <llvm/IR/Module.h>
#include <llvm/TargetParser/Triple.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/vector_math.h"
#include "ir/program.h"
#include "runtime/abi.h"

namespace hostjit {

// What the code is for.
struct CodegenOptions {
  llvm::Triple triple;
  llvm::DataLayout data_layout{""};
  // The vector forms of math functions that exist on this machine and in this process.
  std::vector<VectorMathVariant> vector_math;
  // Width of the widest registers that arithmetic should use.
  unsigned vector_bits = 128;
  // Whether there is the instruction of pair_dots.h.
  bool has_pair_dots = false;
};

// An empty module for it.
std::unique_ptr<llvm::Module> make_module(const std::string& name, llvm::LLVMContext& context,
                                          const CodegenOptions& options);

// What is known of a program's code without generating it.
struct CodeInterface {
  FrameLayout layout;
  std::string main_symbol;
  std::string init_symbol;   // empty when the program hoisted nothing
  std::string times_symbol;  // of code that times its nodes
};
// Throws Error that names the value when memory of the program is not static.
CodeInterface code_interface(const Program& program);

// Emits main and init of a static program, kernels linked in, into one module of `context`. The
// module depends on the program and the options only, and holds no address of this process.
// Throws Error that names kernel or value when the program can't be compiled.
//
// With `time_nodes` every call writes hostjit_now() into the int64_t[num_node_times] at
// times_symbol: twice at its begin, so that the difference is what looking at the clock costs, then
// at 2 + i when op i of the body is done, and at the end. An op without code leaves its place
// alone. From num_host_times on is the time that the CUDA device took for each op of the body, of
// those that give it work; a call waits for that.
std::unique_ptr<llvm::Module> generate(const Program& program, llvm::LLVMContext& context,
                                       const CodegenOptions& options, bool time_nodes = false);
inline size_t num_host_times(const Program& program) { return program.body().size() + 3; }
inline size_t num_node_times(const Program& program) {
  return num_host_times(program) + program.body().size();
}

struct PackedKernelsResult {
  std::unique_ptr<llvm::Module> module;
  std::map<std::string, std::string> symbols;  // by kernel
};

// Emits a function of type PackedKernel for each kernel that the program launches.
PackedKernelsResult generate_packed_kernels(const Program& program, llvm::LLVMContext& context,
                                            const CodegenOptions& options);

}  // namespace hostjit
