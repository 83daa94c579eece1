// SPDX-License-Identifier: Apache-2.0
#include "benchmarked_program.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>
#include <vector>

#include "evaluator/evaluator.h"
#include "ir/parser.h"
#include "jit/jit.h"
#include "passes/pipeline.h"
#include "runtime/program_state.h"
#include "support/check.h"

namespace hostjit {
namespace {

Program planned(std::string_view text) {
  Program program = parse_program(text);
  run_pipeline(program);
  return program;
}

// Numbers in [-1, 1) without a pattern that a wrong stride would keep.
at::Tensor example(const TensorType& type) {
  HOSTJIT_CHECK(type.dtype == DType::kF32 && type.is_contiguous(),
                "benchmarks take contiguous f32 inputs, found ", to_string(Type(type)));
  at::Tensor tensor = at::empty(type.sizes(), at::kFloat);
  float* elements = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < type.num_elements(); ++i) {
    elements[i] = std::fmod(static_cast<float>(i) * 0.618034f, 1.0f) * 2 - 1;
  }
  return tensor;
}

}  // namespace

struct BenchmarkedProgram::State {
  explicit State(std::string_view text)
      : program(planned(text)),
        module(CompiledModule::compile(program)),
        evaluator(program, module->packed_kernels()),
        state(module->layout(), module->init()),
        outputs(program.outputs().size()) {
    state.set_evaluator(&evaluator);
    reset_inputs();
  }

  // Inputs with their first values. `inputs` begins with the frame, at main's inputs[-1].
  void reset_inputs() {
    const size_t count = program.inputs().size();
    tensors.clear();
    arguments.clear();
    inputs.assign(1, nullptr);
    tensors.reserve(count);
    arguments.reserve(count);
    for (const Value* input : program.inputs()) {
      if (!input->is_tensor()) {
        inputs.push_back(&index);
        continue;
      }
      at::Tensor& tensor = tensors.emplace_back(example(input->tensor_type()));
      arguments.push_back(
          {tensor.data_ptr(), tensor.sizes().data(), tensor.strides().data(), &tensor});
      inputs.push_back(&arguments.back());
    }
  }

  void run(Runtime runtime) {
    Frame* frame = state.take();
    inputs[0] = frame;
    const MainFunction main = runtime == Runtime::kJit ? module->main() : &evaluator_main;
    if (main(/*cache_id=*/0, inputs.data() + 1, outputs.data()) != 0) [[unlikely]] {
      ProgramState::rethrow(frame);
    }
    state.give_back(frame);
  }

  // Takes the outputs of a run over: tensors, and scalars as tensors.
  std::vector<at::Tensor> take_outputs() {
    std::vector<at::Tensor> taken;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (program.outputs()[i]->is_tensor()) {
        taken.push_back(
            at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(
                static_cast<c10::TensorImpl*>(outputs[i]))));
      } else {
        const auto value = reinterpret_cast<intptr_t>(outputs[i]);
        taken.push_back(at::scalar_tensor(value, at::kLong));
      }
    }
    return taken;
  }

  void release_outputs() {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!program.outputs()[i]->is_tensor()) continue;
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(
          static_cast<c10::TensorImpl*>(outputs[i]));
    }
  }

  // Outputs and inputs after one run from the first values.
  std::vector<at::Tensor> results(Runtime runtime) {
    reset_inputs();
    run(runtime);
    std::vector<at::Tensor> all = take_outputs();
    for (const at::Tensor& tensor : tensors) all.push_back(tensor.clone());
    for (at::Tensor& tensor : all) tensor = tensor.clone();
    return all;
  }

  Program program;
  std::unique_ptr<CompiledModule> module;
  Evaluator evaluator;
  ProgramState state;
  int64_t index = 12;
  std::vector<at::Tensor> tensors;
  std::vector<TensorArg> arguments;
  std::vector<void*> inputs;
  std::vector<void*> outputs;
};

BenchmarkedProgram::BenchmarkedProgram(std::string_view text)
    : state_(std::make_unique<State>(text)) {
  const std::vector<at::Tensor> jit = state_->results(Runtime::kJit);
  const std::vector<at::Tensor> evaluator = state_->results(Runtime::kEvaluator);
  for (size_t i = 0; i < jit.size(); ++i) {
    HOSTJIT_CHECK(at::allclose(jit[i], evaluator[i], /*rtol=*/1.3e-6, /*atol=*/1e-5), "program '",
                  state_->program.name(), "': result ", i,
                  " differs between the JIT and the evaluator");
  }
  state_->reset_inputs();
}

BenchmarkedProgram::~BenchmarkedProgram() = default;

void BenchmarkedProgram::call(Runtime runtime) {
  state_->run(runtime);
  state_->release_outputs();
}

}  // namespace hostjit
