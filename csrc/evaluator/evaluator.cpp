// SPDX-License-Identifier: Apache-2.0
#include "evaluator/evaluator.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <bit>
#include <mutex>
#include <optional>

#include "evaluator/op_evaluator.h"
#include "ir/visitor.h"
#include "runtime/cuda_device.h"
#include "runtime/device_frame.h"
#include "runtime/externs.h"
#include "runtime/program_state.h"

namespace hostjit {

struct Evaluator::State {
  State(Program program, std::map<std::string, PackedKernel> kernels, AtenCallTable aten_calls)
      : program(std::move(program)),
        kernels(std::move(kernels)),
        aten_calls(std::move(aten_calls)),
        stream_numbers(this->program) {}

  Program program;
  std::map<std::string, PackedKernel> kernels;
  AtenCallTable aten_calls;
  StreamNumbers stream_numbers;
  ValueNumbering numbering;
  std::once_flag init_once;
  std::optional<ValueTable> init_values;  // after init_once
};

namespace {

void check_kernel(const LaunchKernel& op, const std::map<std::string, PackedKernel>& kernels) {
  HOSTJIT_CHECK(kernels.contains(op.kernel), "launch_kernel: no kernel '", op.kernel,
                "' was given to the evaluator");
}

RuntimeValue read_input(const Value& value, void* argument) {
  if (value.is_tensor()) {
    return *static_cast<at::Tensor*>(static_cast<TensorArg*>(argument)->tensor);
  }
  if (std::holds_alternative<F64Type>(value.type())) return *static_cast<double*>(argument);
  return *static_cast<int64_t*>(argument);
}

// Ends the work of a call that failed before the values go that it used.
struct AbandonedStreams {
  Frame* frame;
  DeviceStreams& streams;
  ~AbandonedStreams() { streams.abandon(*frame); }
};

// An owned reference to the tensor, or the bits of the number.
void* output_word(RuntimeValue result) {
  if (auto* tensor = std::get_if<at::Tensor>(&result)) return tensor->unsafeReleaseTensorImpl();
  if (auto* number = std::get_if<double>(&result)) return std::bit_cast<void*>(*number);
  return std::bit_cast<void*>(std::get<int64_t>(result));
}

}  // namespace

Evaluator::Evaluator(const Program& program, std::map<std::string, PackedKernel> kernels) {
  Program clone = program.clone();
  AtenCallTable aten_calls(clone);
  state_ = std::make_unique<State>(std::move(clone), std::move(kernels), std::move(aten_calls));
  for (const Value* input : state_->program.inputs()) state_->numbering.add(input);
  for (const Region* region : {&state_->program.init(), &state_->program.body()}) {
    for_each_op(*region, [&](const Op& op) {
      for_each_result(op, [&](const Value* value, ResultKind) { state_->numbering.add(value); });
      const auto* launch = op.get_if<LaunchKernel>();
      const bool is_on_device = launch && is_cuda(program.kernels().at(launch->kernel).language);
      if (launch && !is_on_device) check_kernel(*launch, state_->kernels);
    });
  }
}

Evaluator::~Evaluator() = default;

void Evaluator::run(Frame* frame, void* const* inputs, void** outputs) const {
  State& state = *state_;
  const Program& program = state.program;
  std::call_once(state.init_once, [&] {
    // The values serve calls of either mode: inference tensors would not.
    const c10::InferenceMode normal_tensors(/*enabled=*/false);
    const c10::NoGradGuard no_grad;
    ValueTable values(state.numbering);
    OpEvaluator(frame, program.kernels(), state.kernels, state.aten_calls, state.stream_numbers,
                values)
        .run(program.init(), 0);
    // Calls on any stream read what init made.
    if (frame->program->layout().device >= 0) {
      cuda::synchronize(static_cast<cuda::CUstream>(frame->stream));
    }
    state.init_values = std::move(values);
  });

  DeviceStreams& streams = FrameStorage::of(frame).device_streams;
  ValueTable values = *state.init_values;
  const AbandonedStreams abandoned{frame, streams};
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    const Value* input = program.inputs()[i];
    if (std::holds_alternative<StreamType>(input->type())) {
      const int64_t number = state.stream_numbers.of(input);
      streams.enter(*frame, number, *static_cast<StreamArg*>(inputs[i]));
      values.set(input, number);
    } else {
      values.set(input, read_input(*input, inputs[i]));
    }
  }
  OpEvaluator(frame, program.kernels(), state.kernels, state.aten_calls, state.stream_numbers,
              values)
      .run(program.body(), static_cast<int64_t>(program.init().size()));
  streams.leave(*frame);

  // Look-ups first, because they may fail: outputs are set all or none.
  std::vector<RuntimeValue> results;
  for (const Value* output : program.outputs()) results.push_back(values.get(output));
  for (size_t i = 0; i < results.size(); ++i) outputs[i] = output_word(std::move(results[i]));
}

int32_t evaluator_main(int64_t /*cache_id*/, void* const* inputs, void** outputs) noexcept {
  auto* frame = static_cast<Frame*>(inputs[-1]);
  try {
    const auto* evaluator = static_cast<const Evaluator*>(frame->program->evaluator());
    HOSTJIT_ICHECK(evaluator != nullptr, "the program has no evaluator");
    if (frame->program->layout().device >= 0) begin_device(FrameStorage::of(frame));
    evaluator->run(frame, inputs, outputs);
    return 0;
  } catch (...) {
    ProgramState::record_error(frame, std::current_exception());
    hostjit_cleanup(frame);
    return 1;
  }
}

}  // namespace hostjit
