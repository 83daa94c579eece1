// SPDX-License-Identifier: Apache-2.0
#include "bindings/compiled_program.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <limits>

#include "ir/effects.h"
#include "ir/visitor.h"
#include "passes/pipeline.h"
#include "support/check.h"

namespace hostjit {
namespace {

// Elements of a copy, and multiply-adds of a product, that take some 10 us.
constexpr int64_t kLongCopy = 1 << 16;
constexpr int64_t kLongProduct = 1 << 20;

bool any_op(const Program& program, bool (*holds)(const Op&)) {
  bool result = false;
  for (const Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) { result = result || holds(op); });
  }
  return result;
}

bool may_warn(const Op& op) {
  if (const auto* copy = op.get_if<Copy>()) {
    return is_complex(copy->source->tensor_type().dtype) &&
           !is_complex(copy->out->tensor_type().dtype);
  }
  return op.get_if<AtenCall>() != nullptr;
}

int64_t num_elements(const Value* value) {
  const TensorType& type = value->tensor_type();
  return type.is_static() ? type.num_elements() : std::numeric_limits<int64_t>::max();
}

// One multiply-add per element of out and element of a row of `lhs`.
bool is_long_product(const Value* lhs, const Value* out) {
  const int64_t elements = num_elements(out);
  if (elements >= kLongProduct || lhs->tensor_type().rank() == 0) return true;
  return elements * lhs->tensor_type().sizes().back() >= kLongProduct;
}

bool takes_long(const Op& op) {
  if (op.get_if<AtenCall>() != nullptr || has_regions(op)) return true;
  if (const auto* launch = op.get_if<LaunchKernel>()) return !launch->grid.empty();
  if (const auto* copy = op.get_if<Copy>()) return num_elements(copy->out) >= kLongCopy;
  if (const auto* product = op.get_if<Matmul>()) return is_long_product(product->lhs, product->out);
  if (const auto* product = op.get_if<Bmm>()) return is_long_product(product->lhs, product->out);
  if (const auto* product = op.get_if<Addmm>()) return is_long_product(product->lhs, product->out);
  if (const auto* product = op.get_if<Linear>()) {
    return is_long_product(product->input, product->out);
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
      may_warn_(any_op(program_, &hostjit::may_warn)),
      takes_long_(any_op(program_, &hostjit::takes_long)) {}

Frame* CompiledProgram::take_another_frame() {
  if (!may_warn_) return state_->take();
  const torch::PyWarningHandler warnings;  // of the initialisation of a new frame
  return state_->take();
}

void CompiledProgram::begin_timing() {
  if (!timed_) timed_ = CompiledModule::compile(program_, /*time_nodes=*/true);
  HOSTJIT_CHECK(jit_main_ == module_->main(), "program '", program_.name(),
                "': its nodes are being timed already");
  jit_main_ = timed_->main();
}

MainFunction CompiledProgram::evaluator_main() {
  if (jit_main_ != module_->main()) return jit_main_;
  std::call_once(evaluator_made_, [this] {
    evaluator_ = std::make_unique<Evaluator>(program_, module_->packed_kernels());
    state_->set_evaluator(evaluator_.get());
  });
  return &hostjit::evaluator_main;
}

}  // namespace hostjit
