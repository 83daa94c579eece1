// SPDX-License-Identifier: Apache-2.0
#include "bindings/compiled_program.h"

#include "passes/pipeline.h"

namespace hostjit {

CompiledProgram::CompiledProgram(Program program)
    : program_(std::move(program)),
      pass_timings_(run_pipeline(program_)),
      module_(CompiledModule::compile(program_)),
      state_(std::make_unique<ProgramState>(module_->layout(), module_->init())),
      jit_main_(module_->main()) {}

MainFunction CompiledProgram::evaluator_main() {
  std::call_once(evaluator_made_, [this] {
    evaluator_ = std::make_unique<Evaluator>(program_, module_->packed_kernels());
    state_->set_evaluator(evaluator_.get());
  });
  return &hostjit::evaluator_main;
}

}  // namespace hostjit
