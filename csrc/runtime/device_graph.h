// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/abi.h"
#include "runtime/cuda_types.h"

namespace hostjit {

// One CUDA graph of one frame: made of explicit nodes when the frame is used for the second time,
// and launched again after that with what has changed since.
//
// Whether a graph is faster than launches is measured on the calls that follow, by the time that
// they take of the host, unless FrameLayout::graphs_always says that it is not to be.
class DeviceGraph {
 public:
  DeviceGraph() = default;
  ~DeviceGraph();
  DeviceGraph(DeviceGraph&& other) noexcept;
  DeviceGraph& operator=(DeviceGraph&&) = delete;

  // Does the launches of `spec` on the frame's stream, as a graph or one by one. `words` are
  // described at GraphSpec. Throws what throw_launch_error throws.
  void launch(Frame& frame, const GraphSpec& spec, int64_t* words);

 private:
  bool wants_graph(bool always) const;
  void note_time(bool was_graph, int64_t nanoseconds);
  void launch_graph(Frame& frame, const GraphSpec& spec, int64_t* words);
  void build(Frame& frame, const GraphSpec& spec, int64_t* words);
  void update(Frame& frame, const GraphSpec& spec, int64_t* words);
  void set_enabled(Frame& frame, const GraphSpec& spec, size_t node, const int64_t* words);

  cuda::CUgraph graph_ = nullptr;
  cuda::CUgraphExec exec_ = nullptr;
  std::vector<cuda::CUgraphNode> nodes_;
  std::vector<bool> enabled_;
  std::vector<int64_t> words_;  // of the last launch
  int64_t num_calls_ = 0;
  int64_t shortest_[2] = {INT64_MAX, INT64_MAX};  // nanoseconds, of launches and of the graph
};

}  // namespace hostjit
