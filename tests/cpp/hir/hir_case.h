// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hir/check_lines.h"

namespace hostjit {

// One test of a .hir file. A line "// -----" separates tests; lines in messages count from the
// line after it. Comment lines say what to do and to expect:
//   // RUN: <directive> or <directive>=<argument>, see hir_directive.h
//   // CHECK: // CHECK-NEXT: // CHECK-NOT:   about what the directive prints
//   // EXPECT-ERROR: <the whole message>
struct HirCase {
  struct Run {
    std::string directive;
    std::string argument;
  };
  std::string name;  // "ir/memory.hir:12"
  std::string text;
  std::vector<Run> runs;
  std::vector<CheckLine> checks;
  std::vector<std::string> errors;
};

std::vector<HirCase> split_hir_cases(const std::string& file_name, const std::string& text);

// The tests of every .hir file under `folder`, by file name.
std::vector<HirCase> load_hir_cases(const std::string& folder);

}  // namespace hostjit
