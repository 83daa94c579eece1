// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace hostjit {

// One expectation about printed text; `text` is part of a line, blanks compare as one blank.
//   CHECK:       of some line after the last match
//   CHECK-NEXT:  of the line after the last match
//   CHECK-NOT:   of no line between the matches before and after it
struct CheckLine {
  enum class Kind { kCheck, kNext, kNot };
  Kind kind = Kind::kCheck;
  std::string text;
};

// What went wrong, or "" when `output` is as expected.
std::string check_output(const std::vector<CheckLine>& checks, const std::string& output);

}  // namespace hostjit
