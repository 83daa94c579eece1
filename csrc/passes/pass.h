// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "ir/program.h"

namespace hostjit {

// One rewriting of a program. `run` takes a verified program and leaves a verified one; the runner
// verifies, dumps and times, a pass does none of that.
struct Pass {
  std::string_view name;
  std::string_view doc;  // one line
  void (*run)(Program&);
};

}  // namespace hostjit
