// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ir/access.h"
#include "ir/op_verifier.h"

namespace hostjit {

struct RangePush {
  static constexpr OpInfo kInfo{"range_push", "Opens a profiler range (torch.profiler, NVTX).",
                                /*has_side_effect=*/true};
  std::string label = {};

  static void fields(auto& self, auto& visit) { visit.attribute("label", self.label, Required{}); }
  void verify(const OpVerifier& verifier) const;
};

struct RangePop {
  static constexpr OpInfo kInfo{"range_pop", "Closes the innermost profiler range.",
                                /*has_side_effect=*/true};

  static void fields(auto&, auto&) {}
  void verify(const OpVerifier& verifier) const;
};

}  // namespace hostjit
