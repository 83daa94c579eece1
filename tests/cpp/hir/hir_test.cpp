// SPDX-License-Identifier: Apache-2.0
// Runs every test of tests/hir.
#include <gtest/gtest.h>

#include <algorithm>

#include "hir/hir_directive.h"

namespace hostjit {

std::map<std::string, HirDirective>& hir_directives() {
  static std::map<std::string, HirDirective> directives;
  return directives;
}

void PrintTo(const HirCase& test, std::ostream* out) { *out << test.name; }

namespace {

class HirTest : public testing::TestWithParam<HirCase> {};

TEST_P(HirTest, Runs) {
  ASSERT_FALSE(GetParam().runs.empty()) << "expected a RUN line";
  for (const HirCase::Run& run : GetParam().runs) {
    SCOPED_TRACE(run.directive);
    const auto directive = hir_directives().find(run.directive);
    ASSERT_NE(directive, hir_directives().end()) << "unknown directive";
    directive->second(GetParam(), run.argument);
  }
}

std::string test_name(const testing::TestParamInfo<HirCase>& test) {
  std::string name = test.param.name;
  std::ranges::replace_if(name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Hir, HirTest,
                         testing::ValuesIn(load_hir_cases(HOSTJIT_TEST_DATA_DIR "/hir")),
                         test_name);

}  // namespace
}  // namespace hostjit
