// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "bindings/backward_plan.h"

namespace hostjit {

struct KeptForAgain {
  at::Tensor state;                // of the default generator, where the plan draws
  std::vector<at::Tensor> copies;  // see BackwardPlan::copied
};

// Makes the results of a forward call that need gradients results of one autograd node, which runs
// the plan's backward program without Python and without the GIL. The forward program ran by the
// row `forward`; `inputs` are its inputs, undefined where they are no tensors but `numbers`, of
// which an int64_t or a double has these bits; `outputs` is what it returned. `before`: what
// `keep_for_again` returned before it ran.
//
// What the backward pass needs is saved as PyTorch's own operators save it: a write in place is
// noticed, hooks of torch.autograd.graph.saved_tensors_hooks see it, and it is released by the
// backward pass unless the graph is retained.
void attach_backward(const std::shared_ptr<const BackwardPlan>& plan, const ProgramRow& forward,
                     std::span<const at::Tensor* const> inputs, std::vector<int64_t> numbers,
                     KeptForAgain before, const std::vector<at::Tensor>& outputs);

// For a plan whose forward may be run again: what this call is about to change.
KeptForAgain keep_for_again(const BackwardPlan& plan, std::span<const at::Tensor* const> inputs);

// Writes the new values to the inputs that have any, by an operator that autograd records.
void update_inputs(const BackwardPlan& plan, std::span<const at::Tensor* const> inputs,
                   const std::vector<at::Tensor>& outputs);

}  // namespace hostjit
