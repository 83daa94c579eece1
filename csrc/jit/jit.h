// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ir/program.h"
#include "runtime/abi.h"

// Native code of a Host IR program. Includes no LLVM header.

namespace hostjit {

// Where the time of one compilation went, in milliseconds.
struct CompileTimings {
  double cache = 0;  // look-up and store in the object cache
  double emit = 0;   // Host IR and kernel texts to one LLVM module; 0 when the cache has the code
  double optimize = 0;  // LLVM's O2 pipeline; as generate, added up over threads
  double generate = 0;  // machine code
  double link = 0;      // into this process, and look-ups
};

// The code of a program for another process.
struct PortableCode {
  std::string key;      // digest of all that decides the code; empty: fits nowhere
  std::string objects;  // as the linker of the JIT takes them
};

// What code depends on besides the program: CPU, its features and the vector math of this process,
// as text for people; the key of PortableCode covers it.
std::string host_description();

// The code of one program. It is freed with this object, so whoever may call main or a kernel
// keeps the object alive. All members may be called from several threads.
class CompiledModule {
 public:
  // Compiles for the CPU of this process, or takes what an earlier process with the same program
  // left in the object cache. Throws Error that names the kernel and has LLVM's
  // diagnostic when a kernel text is wrong, InternalError when LLVM fails otherwise.
  // With `time_nodes` the code notes when each node is done, see node_times.
  static std::unique_ptr<CompiledModule> compile(const Program& program, bool time_nodes = false);
  // Links code that portable_code() returned, maybe in another process, without LLVM's optimiser
  // and code generator; null when it is not what compile() would make here. Throws Error when the
  // objects are none.
  static std::unique_ptr<CompiledModule> link(const Program& program, const PortableCode& code);

  ~CompiledModule();
  CompiledModule(const CompiledModule&) = delete;
  CompiledModule& operator=(const CompiledModule&) = delete;

  MainFunction main() const;
  // Fills the hoisted constants of a new frame; null when the program has none.
  MainFunction init() const;
  const FrameLayout& layout() const;
  // What the last call of main wrote: nanoseconds of a steady clock, as generate() says. Empty
  // unless the code times its nodes. Calls from several threads at once mix theirs.
  std::span<int64_t> node_times() const;
  const CompileTimings& timings() const;

  // The kernels behind the interface that the evaluator calls. Compiled when first asked for.
  const std::map<std::string, PackedKernel>& packed_kernels() const;

  // The objects of this code, out of the object cache or compiled again: they are not kept.
  PortableCode portable_code() const;

  // Texts, made again from the program when asked for: keeping them would cost every compilation.
  std::string llvm_ir() const;  // after optimisation; a module for each part of the code
  std::string unoptimized_llvm_ir() const;  // as emitted, kernels linked in
  std::string assembly() const;

 private:
  struct State;
  void dump_texts() const;
  // Objects is a function of the target.
  template <class Objects>
  static std::unique_ptr<CompiledModule> link_objects(std::unique_ptr<State> state,
                                                      Objects make_objects);
  explicit CompiledModule(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What the object cache did in this process.
struct ObjectCacheReport {
  std::string directory;  // empty while the cache is off
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t rejected = 0;  // of the misses: entries that are damaged or not this user's alone
  int64_t stored = 0;
  int64_t evicted = 0;
  std::string problem;  // the last reason why something could not be read or kept; often empty
};
ObjectCacheReport object_cache_report();

}  // namespace hostjit
