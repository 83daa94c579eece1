// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "hir/hir_case.h"

namespace hostjit {

// Does one RUN line and reports with gtest's EXPECT macros.
//   round_trip    prints and parses back to an equal program; without CHECK lines the text of the
//                 test must be what is printed, comment lines left out
//   error         parsing fails with the message of EXPECT-ERROR
//   pass=a,b      runs passes, then CHECK lines
//   execute       both runtimes agree; with execute=error, on an error
using HirDirective = std::function<void(const HirCase& test, const std::string& argument)>;

// The directives by name. A file adds one by a static RegisterHirDirective.
std::map<std::string, HirDirective>& hir_directives();

struct RegisterHirDirective {
  RegisterHirDirective(const std::string& name, HirDirective directive) {
    hir_directives()[name] = std::move(directive);
  }
};

}  // namespace hostjit
