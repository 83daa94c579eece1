// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "bindings/backward_plan.h"

namespace hostjit {

// Makes the results of a forward call that need gradients results of one autograd node, which runs
// the plan's backward program without Python and without the GIL. The forward program ran by the
// row `forward`; `inputs` are its inputs, undefined where they are no tensors but `numbers`, of
// which an int64_t or a double has these bits; `outputs` is what it returned. `state`: what
// `state_to_keep` returned before it ran.
//
// What the backward pass needs is saved as PyTorch's own operators save it: a write in place is
// noticed, hooks of torch.autograd.graph.saved_tensors_hooks see it, and it is released by the
// backward pass unless the graph is retained.
void attach_backward(const std::shared_ptr<const BackwardPlan>& plan, const ProgramRow& forward,
                     std::span<const at::Tensor* const> inputs, std::vector<int64_t> numbers,
                     at::Tensor state, const std::vector<at::Tensor>& outputs);

// The state of the default generator, if the plan's forward draws from it and may be run again;
// otherwise undefined.
at::Tensor state_to_keep(const BackwardPlan& plan);

// Writes the new values to the inputs that have any, by an operator that autograd records.
void update_inputs(const BackwardPlan& plan, std::span<const at::Tensor* const> inputs,
                   const std::vector<at::Tensor>& outputs);

}  // namespace hostjit
