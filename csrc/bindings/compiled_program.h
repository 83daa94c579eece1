// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "bindings/program_rows.h"
#include "ir/program.h"
#include "jit/jit.h"
#include "passes/pass_manager.h"
#include "runtime/program_state.h"

namespace hostjit {

// Which runtime a call runs on.
enum class RuntimeChoice { kKnob, kJit, kEvaluator };

// A Host IR program made runnable by both runtimes: after the passes, with its compiled code, its
// evaluators and its rows. Calls from several threads that hold the GIL are fine.
class CompiledProgram {
 public:
  // Runs the pass pipeline on `program` and compiles it. Throws Error.
  explicit CompiledProgram(Program program);

  // Of a program after the passes, as program() is of another CompiledProgram: links `code`, or
  // compiles the program where that is null or does not fit here. Throws Error.
  static std::shared_ptr<CompiledProgram> restore(Program planned, const PortableCode* code);
  // Whether it was made of code that restore() was given.
  bool is_linked() const { return is_linked_; }

  const Program& program() const { return program_; }
  const CompiledModule& module() const { return *module_; }
  const std::vector<PassTiming>& pass_timings() const { return pass_timings_; }

  MainFunction jit_main() const { return jit_main_; }
  // The row that answers every call of a program without symbols; null with symbols.
  ProgramRow* only_row() const { return only_row_.get(); }
  // Null without symbols.
  ProgramRows* rows() const { return rows_.get(); }
  // The row of these values of the input symbols, none without symbols. Needs no GIL as long as the
  // pointer is kept. Throws Error when the program can't have them.
  std::shared_ptr<ProgramRow> row(const RowSizes& sizes) const {
    return rows_ ? rows_->get(sizes) : only_row_;
  }

  // Until end_timing, calls by either runtime run code that times its nodes, compiled when first
  // asked for. Throws Error while they already do.
  void begin_timing();
  void end_timing() { jit_main_ = module_->main(); }
  // See CompiledModule::node_times.
  std::span<int64_t> node_times() const {
    return timed_ ? timed_->node_times() : std::span<int64_t>();
  }

  MainFunction main(RuntimeChoice runtime, ProgramRow& row);
  // The evaluator of a row is made when it is first asked for. Needs no GIL.
  MainFunction evaluator_main(ProgramRow& row);

 private:
  CompiledProgram(Program planned, std::unique_ptr<CompiledModule> linked);
  void make_rows();

  Program program_;
  std::vector<PassTiming> pass_timings_;
  std::unique_ptr<CompiledModule> module_;
  // Null before begin_timing. Its frames are those of module_: the layouts are the same.
  std::unique_ptr<CompiledModule> timed_;
  std::unique_ptr<ProgramState> state_;  // with symbols: what the rows share
  std::unique_ptr<ProgramRows> rows_;
  std::shared_ptr<ProgramRow> only_row_;
  std::mutex evaluator_mutex_;
  MainFunction jit_main_ = nullptr;
  bool is_linked_ = false;
};

}  // namespace hostjit
