// SPDX-License-Identifier: Apache-2.0
// Latency of single nodes and of chains of launches, with the JIT and with the evaluator. Every
// program's results are compared between the two before it is timed.
//
//   hostjit_cpp_bench --benchmark_filter=launch_chain

#include <benchmark/benchmark.h>

#include <string>

#include "benchmarked_program.h"
#include "node_programs.h"
#include "slope_reporter.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

struct RuntimeName {
  Runtime runtime;
  const char* name;
};
constexpr RuntimeName kRuntimes[] = {{Runtime::kJit, "jit"}, {Runtime::kEvaluator, "evaluator"}};

void time_calls(benchmark::State& state, const std::string& text, Runtime runtime) {
  try {
    BenchmarkedProgram program(text);
    for (auto _ : state) program.call(runtime);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

void register_nodes() {
  for (const NodeProgram& node : node_programs()) {
    for (const auto& [runtime, runtime_name] : kRuntimes) {
      const std::string name = std::string("node/") + std::string(node.name) + "/" + runtime_name;
      benchmark::RegisterBenchmark(name.c_str(), [&node, runtime](benchmark::State& state) {
        time_calls(state, std::string(node.text), runtime);
      });
    }
  }
}

void register_chains() {
  for (Inlining inlining : {Inlining::kAllowed, Inlining::kForbidden}) {
    for (const auto& [runtime, runtime_name] : kRuntimes) {
      const std::string name =
          std::string(inlining == Inlining::kAllowed ? "launch_chain/" : "launch_chain_calls/") +
          runtime_name;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [inlining, runtime](benchmark::State& state) {
                                     time_calls(state, launch_chain(state.range(0), inlining),
                                                runtime);
                                     state.counters["nodes"] = static_cast<double>(state.range(0));
                                   })
          ->RangeMultiplier(2)
          ->Range(1, 512);
    }
  }
}

// From the text to a first result with both runtimes.
void register_compilation() {
  benchmark::RegisterBenchmark("compile/launch_chain",
                               [](benchmark::State& state) {
                                 try {
                                   const std::string text =
                                       launch_chain(state.range(0), Inlining::kAllowed);
                                   for (auto _ : state) BenchmarkedProgram program(text);
                                 } catch (const std::exception& error) {
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->RangeMultiplier(8)
      ->Range(1, 512)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace hostjit

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  // Every round of "compile" is to compile.
  const hostjit::ScopedKnobs compiles_anew({.disable = "object_cache"});
  hostjit::register_nodes();
  hostjit::register_chains();
  hostjit::register_compilation();
  hostjit::SlopeReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  return 0;
}
