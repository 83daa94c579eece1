// SPDX-License-Identifier: Apache-2.0
#include "bindings/compiled_program.h"

#include "ir/verifier.h"
#include "passes/pipeline.h"
#include "support/check.h"
#include "support/knobs.h"

namespace hostjit {

CompiledProgram::CompiledProgram(Program program)
    : program_(std::move(program)),
      pass_timings_(run_pipeline(program_)),
      module_(CompiledModule::compile(program_)),
      jit_main_(module_->main()) {
  make_rows();
}

CompiledProgram::CompiledProgram(Program planned, std::unique_ptr<CompiledModule> linked)
    : program_(std::move(planned)),
      module_(linked ? std::move(linked) : CompiledModule::compile(program_)),
      jit_main_(module_->main()) {
  make_rows();
}

std::shared_ptr<CompiledProgram> CompiledProgram::restore(Program planned,
                                                          const PortableCode* code) {
  verify_program(planned);
  std::unique_ptr<CompiledModule> linked;
  if (code != nullptr) linked = CompiledModule::link(planned, *code);
  const bool is_linked = linked != nullptr;
  std::shared_ptr<CompiledProgram> restored(
      new CompiledProgram(std::move(planned), std::move(linked)));
  restored->is_linked_ = is_linked;
  return restored;
}

void CompiledProgram::make_rows() {
  auto state = std::make_unique<ProgramState>(module_->layout(), module_->init());
  if (program_.is_symbolic()) {
    state_ = std::move(state);
    rows_ = std::make_unique<ProgramRows>(program_, *state_);
  } else {
    only_row_ = std::make_shared<ProgramRow>(std::move(state), program_, program_.kernels());
  }
}

void CompiledProgram::begin_timing() {
  if (!timed_) timed_ = CompiledModule::compile(program_, /*time_nodes=*/true);
  HOSTJIT_CHECK(jit_main_ == module_->main(), "program '", program_.name(),
                "': its nodes are being timed already");
  jit_main_ = timed_->main();
}

MainFunction CompiledProgram::main(RuntimeChoice runtime, ProgramRow& row) {
  const bool evaluator = runtime == RuntimeChoice::kEvaluator ||
                         (runtime == RuntimeChoice::kKnob && !host_ir_jit_enabled());
  return evaluator ? evaluator_main(row) : jit_main();
}

MainFunction CompiledProgram::evaluator_main(ProgramRow& row) {
  if (jit_main_ != module_->main()) return jit_main_;
  const std::lock_guard<std::mutex> lock(evaluator_mutex_);
  if (row.state().evaluator() == nullptr) {
    row.set_evaluator(std::make_unique<Evaluator>(rows_ ? rows_->program_of(row) : program_.clone(),
                                                  module_->packed_kernels()));
  }
  return &hostjit::evaluator_main;
}

}  // namespace hostjit
