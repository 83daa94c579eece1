// SPDX-License-Identifier: Apache-2.0
// RUN: execute: both runtimes agree, on the program as it is and after the passes. With
// execute=error, both raise the same error; without, none.
#include <gtest/gtest.h>

#include "hir/hir_directive.h"
#include "ir/parser.h"
#include "passes/pipeline.h"
#include "tools/runtime_comparison.h"

namespace hostjit {
namespace {

void execute(const HirCase& test, const std::string& expected) {
  constexpr uint64_t kSeed = 20;
  Program program = parse_program(test.text);
  RunnableProgram as_written(program);
  EXPECT_EQ(compare_runtimes(as_written, kSeed), "") << as_written.module().llvm_ir();
  const std::string error = as_written.run_evaluator(random_inputs(program, kSeed)).error;
  EXPECT_EQ(expected == "error", !error.empty()) << error;
  run_pipeline(program);
  RunnableProgram planned(program);
  EXPECT_EQ(compare_runtimes(planned, kSeed), "") << planned.module().llvm_ir();
}

const RegisterHirDirective kExecute("execute", execute);

}  // namespace
}  // namespace hostjit
