// SPDX-License-Identifier: Apache-2.0
#include "bindings/backward_node.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>

#include "bindings/autograd_node.h"
#include "bindings/donation.h"
#include "bindings/program_arguments.h"
#include "bindings/second_backward.h"
#include "support/check.h"

namespace hostjit {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Kind = BackwardPlan::Kind;

// Autograd keeps no tensor that was made in inference mode: what is in it then. Eager may keep what
// was computed of it instead, which the backward program computes again.
at::Tensor keepable(const at::Tensor& tensor) {
  return tensor.is_inference() ? tensor.clone() : tensor;
}

// A frame of a program for one call, by a thread that need not hold the GIL.
class TakenFrame {
 public:
  explicit TakenFrame(ProgramState& state) : state_(state), frame_(state.take()) {}
  ~TakenFrame() { state_.give_back(frame_); }
  TakenFrame(const TakenFrame&) = delete;
  TakenFrame& operator=(const TakenFrame&) = delete;
  Frame* get() const { return frame_; }

 private:
  ProgramState& state_;
  Frame* frame_;
};

// `inputs` as `plan.inputs`; those that are numbers are among `numbers`. Tensors go as soon as the
// program no longer needs them.
std::vector<at::Tensor> run(const BackwardPlan& plan, ProgramRow& row,
                            std::vector<at::Tensor>& inputs, const std::vector<int64_t>& numbers) {
  CompiledProgram& program = *plan.program;
  const TakenFrame frame(row.state());
  ProgramArguments arguments(program.program(), frame.get());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const BackwardPlan::Source& source = plan.inputs[i];
    if (source.kind == Kind::kNumber) {
      arguments.set_index(i, numbers[source.index]);
    } else {
      arguments.set_tensor(i, inputs[i]);
    }
  }
  const Donation donation(frame.get(), inputs.data());
  c10::SmallVector<void*, 16> raw(program.program().outputs().size(), nullptr);
  if (program.main(plan.runtime, row)(/*cache_id=*/0, arguments.inputs(), raw.data()) != 0) {
    ProgramState::rethrow(frame.get());
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(raw.size());
  for (void* output : raw) outputs.push_back(owned_tensor(output));
  return outputs;
}

// Many at once, of torch.autograd.grad(..., is_grads_batched=True) or torch.func.vmap: PyTorch's
// operators take them.
bool is_batched(const at::Tensor& tangent) {
  constexpr c10::DispatchKeySet kBatched{c10::DispatchKey::FuncTorchBatched,
                                         c10::DispatchKey::Batched};
  return tangent.defined() && tangent.key_set().has_any(kBatched);
}

class Backward final : public torch::autograd::Node {
 public:
  Backward(std::shared_ptr<const BackwardPlan> plan, RowSizes sizes, std::vector<int64_t> numbers,
           KeptForAgain before)
      : plan_(std::move(plan)),
        sizes_(std::move(sizes)),
        numbers_(std::move(numbers)),
        state_(std::move(before.state)),
        written_(std::move(before.copies)),
        passed_(plan_->num_parts > 1 ? plan_->num_parts : 0, false) {}

  std::string name() const override { return "HostjitBackward"; }

  // After the results have this node as their grad_fn.
  void save(std::span<const at::Tensor* const> inputs, const std::vector<at::Tensor>& outputs) {
    saved_.reserve(plan_->saved.size());
    for (const BackwardPlan::Source& source : plan_->saved) {
      if (source.kind == Kind::kInput) {
        saved_.emplace_back(keepable(*inputs[source.index]), /*is_output=*/false);
      } else {
        const at::Tensor& output = outputs[source.index];
        saved_.emplace_back(keepable(output), is_result(output, outputs));
      }
    }
    for (const int64_t i : plan_->unread) written_.push_back(inputs[i]->variable_data());
    if (plan_->num_parts > 1) save_unchecked(inputs, outputs);
  }

  variable_list apply(variable_list&& tangents) override {
    if (plan_->num_parts > 1) enter_parts(tangents);
    // Nothing that the caller wants depends on the results: what was kept may be gone already.
    if (std::ranges::none_of(tangents, &at::Tensor::defined)) return variable_list(num_outputs());
    const bool is_again =
        at::GradMode::is_enabled() || (plan_->again && std::ranges::any_of(tangents, is_batched));
    if (is_again) return gradients_by_pytorch(std::move(tangents));
    return gradients(std::move(tangents));
  }

  void will_release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_last_ = true;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    release();
  }

 private:
  // Where gradients have passed before, and nothing was retained, eager has freed what it saved.
  void enter_parts(const variable_list& tangents) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entered_.assign(plan_->num_parts, false);
    for (size_t i = 0; i < tangents.size(); ++i) {
      if (!tangents[i].defined()) continue;
      const int64_t part = plan_->part_of[i];
      TORCH_CHECK(!passed_[part], torch::autograd::ERR_BACKWARD_TWICE);
      entered_[part] = true;
    }
  }

  // Whether something may still ask for what is saved.
  bool leaves_parts() {
    if (plan_->num_parts == 1) return false;
    for (size_t i = 0; i < entered_.size(); ++i) passed_[i] = passed_[i] || entered_[i];
    is_last_ = false;  // of the parts that were entered
    return std::ranges::find(passed_, false) != passed_.end();
  }

  void release() {
    if (leaves_parts()) return;
    for (at::Tensor& unchecked : unchecked_) unchecked.reset();
    for (SavedVariable& saved : saved_) saved.reset_data();
    for (at::Tensor& written : written_) written.reset();
  }

  // What others may change: inputs, views of them, and results.
  void save_unchecked(std::span<const at::Tensor* const> inputs,
                      const std::vector<at::Tensor>& outputs) {
    unchecked_.reserve(plan_->saved.size());
    for (const BackwardPlan::Source& source : plan_->saved) {
      if (source.kind == Kind::kInput) {  // a SavedVariable holds these themselves, too
        unchecked_.push_back(keepable(*inputs[source.index]));
        continue;
      }
      const at::Tensor& kept = outputs[source.index];
      const bool may_change =
          is_result(kept, outputs) || std::ranges::any_of(inputs, [&](const at::Tensor* input) {
            return input->defined() && input->has_storage() && kept.is_alias_of(*input);
          });
      unchecked_.push_back(may_change ? kept.variable_data() : at::Tensor());
    }
  }

  // What is kept may be, or share its header with, a result: then this node is its grad_fn, and to
  // hold the tensor itself would hold this node.
  bool is_result(const at::Tensor& output, const std::vector<at::Tensor>& outputs) const {
    const auto end = outputs.begin() + plan_->num_results;
    return std::any_of(outputs.begin(), end,
                       [&](const at::Tensor& result) { return result.is_same(output); });
  }

  at::Tensor saved(int64_t position) {
    // What no gradient that arrives is made of is taken as it is: the program multiplies it by the
    // zeros that stand for the others, and its owner may have changed it since.
    if (plan_->num_parts > 1 && !is_needed(position) && unchecked_[position].defined()) {
      return unchecked_[position];
    }
    return saved_[position].unpack(getptr());
  }

  bool is_needed(size_t position) const {
    if (position >= plan_->saved_for.size()) return true;
    const std::vector<int64_t>& parts = plan_->saved_for[position];
    return std::ranges::any_of(parts, [&](int64_t part) { return entered_[part]; });
  }

  at::Tensor input(const BackwardPlan::Source& source, const ExpectedTensor& expected,
                   const variable_list& tangents) {
    if (source.kind == Kind::kConstant) return source.constant;
    if (source.kind == Kind::kSize) return expected.make();
    if (source.kind == Kind::kSaved) {
      return expected.conform(saved(source.index), "a tensor saved for backward");
    }
    const at::Tensor& tangent = tangents[plan_->tangent_of(source.index)];
    if (!tangent.defined()) return expected.zeros();
    return expected.conform(tangent, "an incoming gradient");
  }

  // Saved tensors are unpacked, perhaps by the user's hooks, in the state of the caller.
  std::vector<at::Tensor> program_inputs(const ProgramRow& row, const variable_list& tangents) {
    std::vector<at::Tensor> inputs;
    inputs.reserve(plan_->inputs.size());
    auto shape = row.shapes().begin();
    for (size_t i = 0; i < plan_->inputs.size(); ++i) {
      if (plan_->inputs[i].kind == Kind::kNumber) {
        inputs.emplace_back();
        continue;
      }
      const auto& known = plan_->expected[i];
      inputs.push_back(input(plan_->inputs[i], known ? *known : (shape++)->tensor, tangents));
    }
    return inputs;
  }

  variable_list gradients(variable_list&& tangents) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::shared_ptr<ProgramRow> row = plan_->program->row(sizes_);
    std::vector<at::Tensor> inputs = program_inputs(*row, tangents);
    std::vector<bool> arrived;
    for (const at::Tensor& tangent : tangents) arrived.push_back(tangent.defined());
    tangents.clear();
    if (is_last_) release();
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const std::vector<at::Tensor> outputs = run(*plan_, *row, inputs, numbers_);
    variable_list gradients;
    gradients.reserve(plan_->gradients.size());
    for (size_t edge = 0; edge < plan_->gradients.size(); ++edge) {
      const std::vector<int64_t>& reached = plan_->reached[edge];
      const bool is_reached = reached.empty() || std::ranges::any_of(reached, [&](int64_t tangent) {
                                return arrived[tangent];
                              });
      gradients.push_back(is_reached ? outputs[plan_->gradients[edge]] : at::Tensor());
    }
    return gradients;
  }

  // With create_graph=True, or of many tangents at once.
  variable_list gradients_by_pytorch(variable_list&& tangents) {
    if (!plan_->again)
      return without_second_derivatives(*plan_, torch::autograd::edge_list(next_edges()),
                                        gradients(std::move(tangents)));
    std::vector<at::Tensor> inputs;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const BackwardPlan::Source& source : plan_->inputs_for_again) {
        inputs.push_back(input_for_again(source));
      }
    }
    variable_list all = gradients_again(*plan_, inputs, numbers_, tangents, state_);
    variable_list gradients;
    for (const int64_t i : plan_->edges) gradients.push_back(std::move(all[i]));
    return gradients;
  }

  at::Tensor input_for_again(const BackwardPlan::Source& source) {
    if (source.kind == Kind::kNumber) return {};
    return source.kind == Kind::kInput ? written_[source.index] : saved(source.index);
  }

  std::shared_ptr<const BackwardPlan> plan_;
  RowSizes sizes_;                   // of the backward program's symbols
  std::vector<int64_t> numbers_;     // see BackwardPlan::numbers
  at::Tensor state_;                 // see BackwardPlan::draws
  std::vector<at::Tensor> written_;  // see BackwardPlan::copied, then BackwardPlan::unread
  std::vector<SavedVariable> saved_;
  bool is_last_ = false;  // nobody may ask for what is saved after the call that comes
  // Where the plan has several parts: those that gradients have passed for the last time, those
  // that they pass now, and what others may change of what is saved once more, as it is.
  std::vector<bool> passed_;
  std::vector<bool> entered_;
  std::vector<at::Tensor> unchecked_;
};

}  // namespace

void attach_backward(const std::shared_ptr<const BackwardPlan>& plan, const ProgramRow& forward,
                     std::span<const at::Tensor* const> inputs, std::vector<int64_t> numbers,
                     KeptForAgain before, const std::vector<at::Tensor>& outputs) {
  auto node =
      make_node<Backward>(plan, plan->sizes_of(forward), std::move(numbers), std::move(before));
  torch::autograd::edge_list edges;
  edges.reserve(plan->edges.size());
  for (const int64_t i : plan->edges) {
    edges.push_back(torch::autograd::impl::gradient_edge(*inputs[i]));
  }
  node->set_next_edges(std::move(edges));
  for (int64_t i = 0; i < plan->num_results; ++i) {
    if (!plan->differentiable[i]) continue;
    at::Tensor result = outputs[i];
    torch::autograd::create_gradient_edge(result, node);
  }
  node->save(inputs, outputs);
}

KeptForAgain keep_for_again(const BackwardPlan& plan, std::span<const at::Tensor* const> inputs) {
  KeptForAgain before;
  for (const int64_t i : plan.copied) before.copies.push_back(inputs[i]->clone());
  if (!plan.draws) [[likely]]
    return before;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  before.state = generator.get_state();
  return before;
}

void update_inputs(const BackwardPlan& plan, std::span<const at::Tensor* const> inputs,
                   const std::vector<at::Tensor>& outputs) {
  for (size_t i = 0; i < plan.updated.size(); ++i) inputs[plan.updated[i]]->copy_(outputs[i]);
}

}  // namespace hostjit
