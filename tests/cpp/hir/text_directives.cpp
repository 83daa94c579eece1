// SPDX-License-Identifier: Apache-2.0
// The directives that need the IR only.
#include <gtest/gtest.h>

#include <sstream>

#include "hir/hir_directive.h"
#include "ir/parser.h"
#include "ir/printer.h"

namespace hostjit {
namespace {

std::string without_comment_lines(const std::string& text) {
  std::istringstream stream(text);
  std::string out;
  for (std::string line; std::getline(stream, line);) {
    const size_t start = line.find_first_not_of(" \t");
    const bool is_comment = start != std::string::npos && line.compare(start, 2, "//") == 0;
    if (!is_comment && !(line.empty() && out.empty())) out += line + "\n";
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

void round_trip(const HirCase& test, const std::string&) {
  const Program program = parse_program(test.text);
  const std::string printed = to_string(program);
  const Program again = parse_program(printed);
  EXPECT_TRUE(structurally_equal(program, again)) << printed;
  EXPECT_EQ(to_string(again), printed);
  const Program copy = program.clone();
  EXPECT_TRUE(structurally_equal(program, copy));
  EXPECT_EQ(to_string(copy), printed);
  if (test.checks.empty()) {
    EXPECT_EQ(printed, without_comment_lines(test.text));
  } else {
    EXPECT_EQ(check_output(test.checks, printed), "") << printed;
  }
}

void error(const HirCase& test, const std::string&) {
  ASSERT_EQ(test.errors.size(), 1u) << "expected one EXPECT-ERROR line";
  try {
    parse_program(test.text);
    ADD_FAILURE() << "no error, expected: " << test.errors[0];
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), test.errors[0]);
  }
}

const RegisterHirDirective kRoundTrip("round_trip", round_trip);
const RegisterHirDirective kError("error", error);

}  // namespace
}  // namespace hostjit
