// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace hostjit {

enum class Runtime : uint8_t { kJit, kEvaluator };

// A program compiled for both runtimes, with example inputs: what the benchmarks call.
class BenchmarkedProgram {
 public:
  // Parses the text, runs the default passes and compiles. Inputs are float tensors of small
  // numbers. Throws Error when the runtimes disagree on a result or on a written input.
  explicit BenchmarkedProgram(std::string_view text);
  ~BenchmarkedProgram();
  BenchmarkedProgram(const BenchmarkedProgram&) = delete;
  BenchmarkedProgram& operator=(const BenchmarkedProgram&) = delete;

  // One call as from Python, without Python: takes a frame, calls main, releases the outputs and
  // gives the frame back. Throws what a node raises.
  void call(Runtime runtime);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hostjit
