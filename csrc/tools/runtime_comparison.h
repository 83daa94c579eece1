// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/row_maker.h"
#include "evaluator/evaluator.h"
#include "ir/program.h"
#include "jit/jit.h"
#include "runtime/arena_pool.h"
#include "runtime/program_state.h"

// Runs one program by both runtimes on the same inputs. For the tool and the tests.

namespace hostjit {

// A program with its compiled code and its evaluator, as it is given: no pass runs.
class RunnableProgram {
 public:
  struct Result {
    // Scalars are zero-dim tensors. Empty after an error.
    std::vector<at::Tensor> outputs;
    std::string error;  // with the note that names the node
  };

  explicit RunnableProgram(const Program& program);

  const CompiledModule& module() const { return *module_; }
  // With the numbers of the row, after use_row.
  const Program& program() const { return row_program_; }
  // Empty for a program without symbols.
  std::vector<std::string> symbols() const {
    return maker_ ? maker_->symbols().input_names() : std::vector<std::string>();
  }

  // Makes the calls that follow calls of the row of these sizes, one per symbol. Throws Error when
  // there is none, and when its program is not valid.
  void use_row(const std::vector<int64_t>& sizes);

  // Of the program's types and of the row.
  std::vector<at::Tensor> random_inputs(uint64_t seed) const;

  // Inputs are in the order of the program; scalars are zero-dim tensors of int64, bool or double,
  // streams tensors of int64: [id, device].
  Result run_jit(std::vector<at::Tensor> inputs) { return run(module_->main(), std::move(inputs)); }
  Result run_evaluator(std::vector<at::Tensor> inputs) {
    return run(&evaluator_main, std::move(inputs));
  }

 private:
  void make_evaluator(ProgramState& state);
  Result run(MainFunction main, std::vector<at::Tensor> inputs);

  Program program_;
  std::unique_ptr<CompiledModule> module_;
  std::unique_ptr<Evaluator> evaluator_;
  ProgramState state_;
  // Of a program with symbols.
  Program row_program_;
  std::optional<RowMaker> maker_;
  std::vector<int64_t> sizes_;
  std::shared_ptr<ArenaPool> arenas_;
  std::unique_ptr<ProgramState> row_;
};

// Seeded inputs of the program's types: normal numbers, small integers, bools.
std::vector<at::Tensor> random_inputs(const Program& program, uint64_t seed);

// Calls both runtimes with equal inputs, `num_calls` times each on one frame. Empty when errors,
// outputs and what is left in the inputs agree, or what differs.
std::string compare_runtimes(RunnableProgram& program, uint64_t seed, int num_calls = 2);

// The same for calls of rows of these sizes, or of a choice of sizes when there are none.
std::string compare_rows(RunnableProgram& program, uint64_t seed,
                         std::vector<std::vector<int64_t>> rows = {});

}  // namespace hostjit
