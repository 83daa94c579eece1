// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Numbers the runs of launches on CUDA that can be CUDA graphs (LaunchKernel::graph): two or more
// launches with nothing between them but places of memory, views, numbers, and short kernels of the
// CPU, which are done when the launches of the run are described. Launches with a stream or launch
// attributes of their own are left out. Without the knob cuda_graphs no launch has a graph.
void cut_graphs(Program& program);

// Whether all that the body does on CUDA devices would be one graph.
bool is_one_graph(const Program& program);

}  // namespace hostjit
