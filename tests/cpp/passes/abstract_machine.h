// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/program.h"

namespace hostjit {

// Runs a program with made-up arithmetic: what an op writes is a hash of its location and of all
// that it reads. Two programs that give the same bytes move the same data through the same ops in
// an equivalent order. Memory is as real code has it: planned buffers lie in one arena that calls
// share, fresh memory holds garbage, freed memory is overwritten.
class AbstractMachine {
 public:
  using Bytes = std::vector<uint8_t>;

  // Makes the frame and runs init.
  explicit AbstractMachine(const Program& program);

  // Runs the body on the memory of `inputs` and returns the elements of each output.
  std::vector<Bytes> call(std::vector<Bytes>& inputs);

  // How many impure ops ran so far.
  uint64_t num_effects() const { return num_effects_; }

 private:
  void run(const Op& op, std::deque<Bytes>& memory);
  // A condition holds if its byte is odd; a while ends after 4 iterations at the latest.
  void run_regions(const Op& op, std::deque<Bytes>& memory);
  uint8_t* new_memory(const Value* value, std::deque<Bytes>& memory);
  void make_result(const Op& op, const Value* result, uint64_t seed, std::deque<Bytes>& memory);
  // Address of each element, row-major.
  std::vector<uint8_t*> elements(const Value* value) const;
  Bytes read(const Value* value) const;
  void write(const Value* value, uint64_t seed);

  const Program& program_;
  Bytes arena_;
  std::deque<Bytes> frame_memory_;
  std::unordered_map<const Value*, uint8_t*> addresses_;
  std::unordered_map<const Value*, int64_t> integers_;
  std::unordered_set<const Value*> live_;  // buffers of the body with bytes in the arena
  uint64_t num_effects_ = 0;
};

}  // namespace hostjit
