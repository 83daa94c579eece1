// SPDX-License-Identifier: Apache-2.0
#include "codegen/launch_plan.h"

#include <algorithm>

#include "codegen/storage.h"
#include "ir/effects.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

// Whether the second of two ops has to wait for the first.
bool depends_on(const Op& second, const Op& first, const StoragePlan& plan) {
  bool found = false;
  for_each_operand(second, [&](const Value* later, Access later_access) {
    for_each_operand(first, [&](const Value* earlier, Access earlier_access) {
      if (found || !later->is_tensor() || !earlier->is_tensor()) return;
      if (!writes(later_access) && !writes(earlier_access)) return;
      found = plan.may_overlap_in_time(plan.of(later), plan.of(earlier));
    });
  });
  return found;
}

}  // namespace

void LaunchPlan::add(const Op& op, const LaunchKernel& launch, const Kernel& kernel,
                     const StoragePlan& plan, FrameLayout& layout) {
  if (is_cuda(kernel.language)) add_kernel(kernel, launch.shared_memory, layout);
  if (launch.graph >= 0) add_graph_node(op, launch, plan, layout);
}

void LaunchPlan::add_kernel(const Kernel& kernel, int64_t shared_memory, FrameLayout& layout) {
  const auto [position, is_new] =
      kernels_.try_emplace(kernel.name, static_cast<int64_t>(layout.device_kernels.size()));
  if (is_new) {
    DeviceKernelSpec spec{kernel.name, kernel.text, kernel.entry, {}};
    if (kernel.language == KernelLanguage::kCudaFunction) spec.function = function_address(kernel);
    for (const ParameterType type : kernel.parameters) {
      spec.parameter_bytes.push_back(size_in_bytes(type));
    }
    layout.device_kernels.push_back(std::move(spec));
  }
  int64_t& most = layout.device_kernels[position->second].shared_memory;
  most = std::max(most, shared_memory);
}

void LaunchPlan::add_graph_node(const Op& op, const LaunchKernel& launch, const StoragePlan& plan,
                                FrameLayout& layout) {
  const auto [position, is_new] =
      graphs_.try_emplace(launch.graph, static_cast<int64_t>(ops_.size()));
  if (is_new) {
    ops_.emplace_back();
    layout.graphs.emplace_back();
  }
  std::vector<const Op*>& ops = ops_[position->second];
  GraphSpec& graph = layout.graphs[position->second];
  GraphNodeSpec node{kernel_of(launch), plan.node_of(op), graph.num_words,
                     static_cast<int64_t>(launch.parameter_operands().size()),
                     launch.shared_memory};
  graph.num_words += 6 + node.num_parameters;
  // The nearest first: what those wait for has been waited for.
  std::vector<bool> waited_for(ops.size(), false);
  for (size_t before = ops.size(); before-- > 0;) {
    if (waited_for[before]) {
      for (const int64_t i : graph.nodes[before].dependencies) waited_for[i] = true;
    } else if (depends_on(op, *ops[before], plan)) {
      node.dependencies.push_back(static_cast<int64_t>(before));
      waited_for[before] = true;
      for (const int64_t i : graph.nodes[before].dependencies) waited_for[i] = true;
    }
  }
  places_[&launch] = {position->second, static_cast<int64_t>(ops.size())};
  ops.push_back(&op);
  graph.nodes.push_back(std::move(node));
}

}  // namespace hostjit
