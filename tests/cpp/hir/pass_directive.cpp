// SPDX-License-Identifier: Apache-2.0
// RUN: pass=canonicalise_views,plan_memory; pass=default is the whole pipeline.
#include <gtest/gtest.h>

#include <sstream>

#include "hir/hir_directive.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "passes/pass_manager.h"
#include "passes/pipeline.h"

namespace hostjit {
namespace {

void run_named_passes(const HirCase& test, const std::string& argument) {
  Program program = parse_program(test.text);
  if (argument == "default") {
    run_passes(program, default_pipeline());
  } else {
    std::vector<Pass> passes;
    std::istringstream names(argument);
    for (std::string name; std::getline(names, name, ',');) passes.push_back(find_pass(name));
    run_passes(program, passes);
  }
  const std::string printed = to_string(program);
  ASSERT_FALSE(test.checks.empty()) << "expected CHECK lines about:\n" << printed;
  EXPECT_EQ(check_output(test.checks, printed), "") << printed;
}

const RegisterHirDirective kPass("pass", run_named_passes);

}  // namespace
}  // namespace hostjit
