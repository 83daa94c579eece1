// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "bindings/backward_plan.h"

// What torch.autograd.grad gets from a compiled backward pass with create_graph=True, or with
// is_grads_batched=True.

namespace hostjit {

// The gradients of the forward inputs, in grad mode with a graph: asks plan.again, in Python.
// `tangents` has one entry per result that has a gradient, undefined where none arrived. `state`:
// see BackwardPlan::draws, undefined without.
std::vector<at::Tensor> gradients_again(const BackwardPlan& plan,
                                        const std::vector<at::Tensor>& inputs,
                                        const std::vector<int64_t>& numbers,
                                        const std::vector<at::Tensor>& tangents,
                                        const at::Tensor& state);

// The same gradients, of which another derivative is an error that names the forward program.
// `edges` lead to where that derivative would go.
std::vector<at::Tensor> without_second_derivatives(const BackwardPlan& plan,
                                                   torch::autograd::edge_list edges,
                                                   std::vector<at::Tensor> gradients);

}  // namespace hostjit
