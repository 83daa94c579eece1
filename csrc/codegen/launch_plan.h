// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/program.h"
#include "runtime/abi.h"

// What a frame needs for the kernels that a device runs: their modules, and the nodes of graphs
// with what each waits for.

namespace hostjit {

class StoragePlan;

class LaunchPlan {
 public:
  // Adds what a launch of `kernel` needs to the layout. The memory of its operands is in `plan`.
  void add(const Op& op, const LaunchKernel& launch, const Kernel& kernel, const StoragePlan& plan,
           FrameLayout& layout);

  // Position in FrameLayout::device_kernels.
  int64_t kernel_of(const LaunchKernel& launch) const { return kernels_.at(launch.kernel); }
  // Of a launch in a graph: its place in FrameLayout::graphs.
  struct GraphPlace {
    int64_t graph = 0;
    int64_t node = 0;
  };
  const GraphPlace& place_of(const LaunchKernel& launch) const { return places_.at(&launch); }

 private:
  void add_kernel(const Kernel& kernel, int64_t shared_memory, FrameLayout& layout);
  void add_graph_node(const Op& op, const LaunchKernel& launch, const StoragePlan& plan,
                      FrameLayout& layout);

  std::unordered_map<std::string, int64_t> kernels_;
  std::unordered_map<int64_t, int64_t> graphs_;  // by LaunchKernel::graph
  std::vector<std::vector<const Op*>> ops_;      // of each graph
  std::unordered_map<const LaunchKernel*, GraphPlace> places_;
};

}  // namespace hostjit
