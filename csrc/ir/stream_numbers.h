// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "ir/program.h"

namespace hostjit {

// Numbers for the streams of a program that are not the caller's, from 1: those of inputs, then
// those of pool_stream ops; and for its events, from 0.
class StreamNumbers {
 public:
  explicit StreamNumbers(const Program& program);

  // Of an input, or the result of a pool_stream or a record_event.
  int64_t of(const Value* value) const { return numbers_.at(value); }
  int64_t num_streams() const { return num_streams_; }
  int64_t num_events() const { return num_events_; }

 private:
  std::unordered_map<const Value*, int64_t> numbers_;
  int64_t num_streams_ = 0;
  int64_t num_events_ = 0;
};

}  // namespace hostjit
