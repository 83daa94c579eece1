// SPDX-License-Identifier: Apache-2.0
#include "bindings/compiled_program.h"

#include "passes/pipeline.h"

namespace hostjit {

CompiledProgram::CompiledProgram(Program program)
    : program_(std::move(program)),
      pass_timings_(run_default_pipeline(program_)),
      module_(CompiledModule::compile(program_)),
      evaluator_(std::make_unique<Evaluator>(program_, module_->packed_kernels())),
      state_(std::make_unique<ProgramState>(module_->layout(), module_->init(), evaluator_.get())),
      jit_main_(module_->main()) {}

}  // namespace hostjit
