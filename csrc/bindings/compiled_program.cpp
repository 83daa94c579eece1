// SPDX-License-Identifier: Apache-2.0
#include "bindings/compiled_program.h"

#include <torch/csrc/Exceptions.h>

#include "passes/pipeline.h"

namespace hostjit {
namespace {

bool may_warn(const Program& program) {
  for (const Region* region : {&program.init(), &program.body()}) {
    for (const auto& op : *region) {
      if (op->get_if<AtenCall>() != nullptr || op->get_if<Copy>() != nullptr) return true;
    }
  }
  return false;
}

}  // namespace

CompiledProgram::CompiledProgram(Program program)
    : program_(std::move(program)),
      pass_timings_(run_pipeline(program_)),
      module_(CompiledModule::compile(program_)),
      state_(std::make_unique<ProgramState>(module_->layout(), module_->init())),
      jit_main_(module_->main()),
      may_warn_(hostjit::may_warn(program_)) {}

Frame* CompiledProgram::take_another_frame() {
  if (!may_warn_) return state_->take();
  const torch::PyWarningHandler warnings;  // of the initialisation of a new frame
  return state_->take();
}

MainFunction CompiledProgram::evaluator_main() {
  std::call_once(evaluator_made_, [this] {
    evaluator_ = std::make_unique<Evaluator>(program_, module_->packed_kernels());
    state_->set_evaluator(evaluator_.get());
  });
  return &hostjit::evaluator_main;
}

}  // namespace hostjit
