// SPDX-License-Identifier: Apache-2.0
// RUN: execute: both runtimes agree, on the program as it is and after the passes. With
// execute=error, both raise the same error; without, none. A program with symbols gets several
// rows; execute=4,2;1,7 says their sizes, in the order of the symbols.
#include <gtest/gtest.h>

#include <sstream>

#include "hir/hir_directive.h"
#include "ir/parser.h"
#include "passes/pipeline.h"
#include "tools/runtime_comparison.h"

namespace hostjit {
namespace {

std::vector<std::vector<int64_t>> rows_of(const std::string& text) {
  std::vector<std::vector<int64_t>> rows;
  std::istringstream rows_text(text);
  for (std::string row; std::getline(rows_text, row, ';');) {
    rows.emplace_back();
    std::istringstream sizes(row);
    for (std::string size; std::getline(sizes, size, ',');) rows.back().push_back(std::stoll(size));
  }
  return rows;
}

void execute(const HirCase& test, const std::string& argument) {
  constexpr uint64_t kSeed = 20;
  const bool is_error = argument == "error";
  const std::vector<std::vector<int64_t>> rows = rows_of(is_error ? "" : argument);
  Program program = parse_program(test.text);
  RunnableProgram as_written(program);
  EXPECT_EQ(compare_rows(as_written, kSeed, rows), "") << as_written.module().llvm_ir();
  if (!program.is_symbolic()) {
    const std::string error = as_written.run_evaluator(random_inputs(program, kSeed)).error;
    EXPECT_EQ(is_error, !error.empty()) << error;
  }
  run_pipeline(program);
  RunnableProgram planned(program);
  EXPECT_EQ(compare_rows(planned, kSeed, rows), "") << planned.module().llvm_ir();
}

const RegisterHirDirective kExecute("execute", execute);

}  // namespace
}  // namespace hostjit
