// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hostjit {

// The one list of options. X(enumerator, kind, name, argument, default on, default argument, help)
// The parser, the error messages, `python -m hostjit knobs` and the reference page come from it.
#define HOSTJIT_FOR_EACH_KNOB(X)                                                               \
  X(kCompile, kSwitch, "compile", kNone, true, "",                                             \
    "Answer calls with compiled programs. Off: what was compiled or captured, and graphs of "  \
    "torch.compile, run eagerly, also in the middle; what was made stays for later.")          \
  X(kHostIrJit, kSwitch, "host_ir_jit", kNone, true, "",                                       \
    "Run compiled code. Off: the evaluator runs the same program, without recompiling.")       \
  X(kPasses, kSwitch, "passes", kNames, true, "",                                              \
    "Run the passes over Host IR. HOSTJIT_DISABLE=passes(a, b) skips a and b; without names, " \
    "all.")                                                                                    \
  X(kRecompileLimit, kSwitch, "recompile_limit", kInteger, true, "8",                          \
    "Specializations of one function before it warns and runs eagerly. Off: no limit.")        \
  X(kObjectCache, kSwitch, "object_cache", kInteger, true, "512",                              \
    "Keep compiled code on disk for later processes, at most so many MiB. Off: compile anew.") \
  X(kGdb, kSwitch, "gdb", kNone, true, "", "Register generated code with GDB.")                \
  X(kPerf, kSwitch, "perf", kNone, false, "",                                                  \
    "Write a perf map of generated code, so that perf names it.")                              \
  X(kCudaGraphs, kSwitch, "cuda_graphs", kNone, true, "",                                      \
    "Make CUDA graphs of runs of launches, where a graph takes less time of the host.")        \
  X(kCudaGraphsAlways, kSwitch, "cuda_graphs_always", kNone, false, "",                        \
    "Run the CUDA graphs without measuring whether they are faster than launches.")            \
  X(kSpreadStreams, kSwitch, "spread_streams", kInteger, false, "2",                           \
    "Put work on a CUDA device that does not depend on one another on so many streams.")       \
  X(kNvtx, kSwitch, "nvtx", kNone, false, "",                                                  \
    "Lower every node inside a range that NVTX sees, with its name and source line.")          \
  X(kProfileRanges, kSwitch, "profile_ranges", kNone, false, "",                               \
    "Lower every node inside a profiler range of its own.")                                    \
  X(kDumpCapture, kDump, "capture", kDirectory, false, "", "The captured graph of ATen ops.")  \
  X(kDumpShapes, kDump, "shapes", kDirectory, false, "",                                       \
    "Why a program serves one combination of sizes, where others were to be served too.")      \
  X(kDumpHostIr, kDump, "host_ir", kDirectory, false, "", "The Host IR that is compiled.")     \
  X(kDumpHostIrPasses, kDump, "host_ir_passes", kDirectory, false, "",                         \
    "The Host IR before the passes and after each.")                                           \
  X(kDumpKernels, kDump, "kernels", kDirectory, false, "",                                     \
    "The LLVM IR and the assembly of each kernel.")                                            \
  X(kDumpLlvmIr, kDump, "llvm_ir", kDirectory, false, "", "The LLVM IR of main, optimised.")   \
  X(kDumpAsm, kDump, "asm", kDirectory, false, "", "The assembly of main.")

enum class Knob : uint8_t {
#define HOSTJIT_KNOB_ENUMERATOR(enumerator, ...) enumerator,
  HOSTJIT_FOR_EACH_KNOB(HOSTJIT_KNOB_ENUMERATOR)
#undef HOSTJIT_KNOB_ENUMERATOR
};

enum class KnobKind : uint8_t {
  kSwitch,  // HOSTJIT_ENABLE and HOSTJIT_DISABLE
  kDump,    // HOSTJIT_DUMP
};

enum class KnobArgument : uint8_t {
  kNone,
  kInteger,    // when enabled
  kNames,      // when disabled
  kDirectory,  // optional; instead of HOSTJIT_DUMP_DIR
};

// The texts of HOSTJIT_ENABLE, HOSTJIT_DISABLE, HOSTJIT_DUMP, HOSTJIT_DUMP_DIR and
// HOSTJIT_CACHE_DIR. What a text doesn't name stays as it was.
struct KnobSettings {
  std::string enable = {};
  std::string disable = {};
  std::string dump = {};
  std::optional<std::string> dump_directory = {};
  std::optional<std::string> cache_directory = {};
};

// Every function below may be called from any thread. The first use of any reads the environment,
// and throws Error, then and at each later use, when that is malformed.

bool is_enabled(Knob knob);

// What stood in the parentheses, or the default argument.
std::vector<std::string> knob_arguments(Knob knob);

// The argument of a knob of kind kInteger; nullopt when it is off.
std::optional<int64_t> knob_integer(Knob knob);

// Where files of dump `knob` go; empty means stderr.
std::string dump_directory(Knob knob);

// Where compiled code is kept; empty means the user's cache directory.
std::string cache_directory();

// Cost one relaxed load: these are asked at every call.
bool compile_enabled();
bool host_ir_jit_enabled();

// Lays `settings` over the current ones, for the whole process, until pop_knobs of the returned
// ticket; tickets may be popped in any order. Throws Error that lists the valid names, and then
// changes nothing.
uint64_t push_knobs(const KnobSettings& settings);
void pop_knobs(uint64_t ticket);

class ScopedKnobs {
 public:
  explicit ScopedKnobs(const KnobSettings& settings) : ticket_(push_knobs(settings)) {}
  ~ScopedKnobs() { pop_knobs(ticket_); }
  ScopedKnobs(const ScopedKnobs&) = delete;
  ScopedKnobs& operator=(const ScopedKnobs&) = delete;

 private:
  uint64_t ticket_;
};

// One line of the reference: what there is and what holds now.
struct KnobRow {
  std::string variable;       // "HOSTJIT_ENABLE / HOSTJIT_DISABLE", "HOSTJIT_DUMP", ...
  std::string name;           // empty for a variable that takes a plain value
  std::string argument;       // "integer", "names", "directory" or empty
  std::string default_value;  // "on", "off", "on (8)"
  std::string help;
  std::string current;
};

// In the order of the list, with HOSTJIT_DUMP_DIR and HOSTJIT_CACHE_DIR last.
std::vector<KnobRow> knob_rows();

// docs/reference/knobs.md; depends on the list only.
std::string knob_reference_page();

namespace detail {
// -1 until the environment was read, then 0 or 1.
inline std::atomic<int8_t> compile_state{-1};
inline std::atomic<int8_t> host_ir_jit_state{-1};

inline bool is_on(const std::atomic<int8_t>& published, Knob knob) {
  const int8_t state = published.load(std::memory_order_relaxed);
  if (state < 0) [[unlikely]]
    return is_enabled(knob);
  return state != 0;
}
}  // namespace detail

inline bool compile_enabled() { return detail::is_on(detail::compile_state, Knob::kCompile); }
inline bool host_ir_jit_enabled() {
  return detail::is_on(detail::host_ir_jit_state, Knob::kHostIrJit);
}

}  // namespace hostjit
