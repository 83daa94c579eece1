// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ir/access.h"
#include "ir/nested_region.h"
#include "ir/op_verifier.h"

namespace hostjit {

// The ops of a region may use what is defined before the op that holds it. What they define is
// gone at the region's end: results leave through memory that was allocated outside.

struct For {
  static constexpr OpInfo kInfo{
      "for", "Runs body for each index from begin, by steps of `step`, while it is less than end."};
  Value* begin = nullptr;
  Value* end = nullptr;
  int64_t step = 1;
  Value* index = nullptr;  // defined in body only
  NestedRegion body = {};

  static void fields(auto& self, auto& visit) {
    visit.operand("begin", self.begin, Access::kRead);
    visit.operand("end", self.end, Access::kRead);
    visit.attribute("step", self.step, int64_t{1});
    visit.result("index", self.index, ResultKind::kScalar);
    visit.region("body", self.body);
  }
  void verify(const OpVerifier& verifier) const;

  uint64_t num_iterations(int64_t first, int64_t last) const;
};

// `condition` is one bool in memory, read before each iteration.
struct While {
  static constexpr OpInfo kInfo{"while", "Runs body as long as condition holds true."};
  Value* condition = nullptr;
  NestedRegion body = {};

  static void fields(auto& self, auto& visit) {
    visit.operand("condition", self.condition, Access::kRead);
    visit.region("body", self.body);
  }
  void verify(const OpVerifier& verifier) const;
};

struct If {
  static constexpr OpInfo kInfo{
      "if", "Runs one of two regions: `then` when condition, one bool in memory, is true."};
  Value* condition = nullptr;
  NestedRegion then = {};
  NestedRegion otherwise = {};

  static void fields(auto& self, auto& visit) {
    visit.operand("condition", self.condition, Access::kRead);
    visit.region("then", self.then);
    visit.region("else", self.otherwise);
  }
  void verify(const OpVerifier& verifier) const;
};

}  // namespace hostjit
