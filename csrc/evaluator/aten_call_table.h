// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "evaluator/value_table.h"
#include "ir/program.h"
#include "runtime/aten_call.h"
#include "runtime/device_streams.h"

namespace hostjit {

// The call sites of the aten_call ops of one program, made once.
class AtenCallTable {
 public:
  explicit AtenCallTable(const Program& program);

  // Does the call on the current one of `streams` and defines the results that somebody uses.
  void call(const AtenCall& op, const DeviceStreams& streams, ValueTable& values) const;

 private:
  // A result's slot is its position in `slots`, which says what type it must have.
  struct Entry {
    std::vector<SlotSpec> slots;
    std::vector<const Value*> results;
    std::unique_ptr<AtenCallSite> site;
  };
  std::unordered_map<const AtenCall*, Entry> entries_;
};

}  // namespace hostjit
