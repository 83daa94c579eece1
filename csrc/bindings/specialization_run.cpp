// SPDX-License-Identifier: Apache-2.0
// The calls of a Specialization, once it was found to answer them.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <optional>
#include <vector>

#include "bindings/backward_node.h"
#include "bindings/backward_plan.h"
#include "bindings/program_call.h"
#include "bindings/specialization.h"

namespace hostjit {

bool Specialization::run_reusing(ProgramCall& call, MainFunction main, const Leaves& leaves) {
  c10::SmallVector<const at::Tensor*, 16> inputs;
  for (size_t i = 0; i < bindings_.size(); ++i) {
    if (!bindings_[i].is_scalar()) inputs.push_back(&input(i, leaves));
  }
  KeptTensors kept = reused_->take(leaves.row->id(), inputs.data(), inputs.size());
  call.keep_outputs(kept);
  if (!call.run(main)) return false;
  reused_->put(leaves.row->id(), std::move(kept));
  return true;
}

bool Specialization::run_for_inference(ProgramCall& call, MainFunction main, const Leaves& leaves) {
  std::optional<at::NoGradGuard> no_grad;
  if (hides_gradients_) no_grad.emplace();
  return reused_ ? run_reusing(call, main, leaves) : call.run(main);
}

bool Specialization::run_for_training(ProgramCall& call, MainFunction main, const Leaves& leaves) {
  c10::SmallVector<const at::Tensor*, 16> inputs;
  for (size_t i = 0; i < bindings_.size(); ++i) inputs.push_back(&input(i, leaves));
  for (const int64_t i : backward_->updated) {
    torch::autograd::check_inplace(*inputs[i], /*requires_grad=*/true);
  }
  std::vector<at::Tensor> outputs;
  KeptForAgain before;
  {
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    before = keep_for_again(*backward_, {inputs.data(), inputs.size()});
    if (!call.run(main, outputs)) return false;
  }
  std::vector<int64_t> numbers;
  for (const size_t i : backward_->numbers) numbers.push_back(bindings_[i].scalar(leaves));
  attach_backward(backward_, *leaves.row, {inputs.data(), inputs.size()}, std::move(numbers),
                  std::move(before), outputs);
  update_inputs(*backward_, {inputs.data(), inputs.size()}, outputs);
  return call.wrap(outputs, backward_->num_results);
}

PyObject* Specialization::run(const Leaves& leaves) {
  if (!in_inference_mode_) [[likely]]
    return run_in_its_mode(leaves);
  const c10::InferenceMode mode;
  return run_in_its_mode(leaves);
}

PyObject* Specialization::run_in_its_mode(const Leaves& leaves) {
  if (!leaves.row->takes_long()) [[likely]]
    return run_program(leaves);
  // Meanwhile another thread may take a tensor out of a list, or rebind a parameter.
  c10::SmallVector<PyRef, 4> alive;
  c10::SmallVector<at::Tensor, 4> alive_inputs;
  for (PyObject* leaf : leaves) alive.push_back(PyRef::share(leaf));
  for (size_t i = 0; i < bindings_.size(); ++i) alive_inputs.push_back(input(i, leaves));
  return run_program(leaves);
}

PyObject* Specialization::run_program(const Leaves& leaves) {
  const MainFunction main = program_->main(runtime_, *leaves.row);
  ProgramCall call(*program_, *leaves.row);
  bool ok;
  if (only_runs_) [[likely]] {
    const InputBinding* bindings = bindings_.data();
    const size_t count = bindings_.size();
    for (size_t i = 0; i < count; ++i) call.set_tensor(i, bindings[i], leaves);
    ok = call.run(main);
  } else {
    ok = run_with_care(call, main, leaves);
  }
  if (!ok) return nullptr;
  return output_.build(call.outputs(), leaves.data(), leaves.values.data());
}

PyObject* Specialization::run_donating(const Leaves& leaves, HeldArguments& held) {
  std::vector<at::Tensor> inputs(bindings_.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!bindings_[i].is_scalar()) inputs[i] = input(i, leaves);
  }
  held.clear();
  ProgramCall call(*program_, *leaves.row);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (bindings_[i].is_scalar()) {
      call.set_index(i, bindings_[i].scalar(leaves));
    } else {
      call.set_tensor(i, inputs[i]);
    }
  }
  const Donation donation = call.donate(inputs.data());
  if (!run_for_inference(call, program_->main(runtime_, *leaves.row), leaves)) return nullptr;
  return output_.build(call.outputs(), /*leaves=*/nullptr, leaves.values.data());
}

bool Specialization::run_with_care(ProgramCall& call, MainFunction main, const Leaves& leaves) {
  for (size_t i = 0; i < bindings_.size(); ++i) {
    if (bindings_[i].is_scalar()) {
      call.set_index(i, bindings_[i].scalar(leaves));
    } else {
      call.set_tensor(i, bindings_[i], leaves);
    }
  }
  return backward_ ? run_for_training(call, main, leaves) : run_for_inference(call, main, leaves);
}

}  // namespace hostjit
