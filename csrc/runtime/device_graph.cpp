// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_graph.h"

#include <algorithm>
#include <utility>

#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/device_kernels.h"
#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "runtime/frame_storage.h"

namespace hostjit {
namespace {

using cuda::CUDA_KERNEL_NODE_PARAMS;
using cuda::CUfunction;
using cuda::CUlaunchConfig;
using cuda::CUresult;
using cuda::CUstream;
using cuda::Driver;

// Calls that are made in turn by launches and by the graph, until the faster of them is known.
constexpr int64_t kTrials = 16;

bool is_empty(const int64_t* words) {
  return std::any_of(words, words + 3, [](int64_t size) { return size <= 0; });
}

void set_shape(const GraphNodeSpec& node, const int64_t* words, uint32_t (&grid)[3],
               uint32_t (&block)[3], uint32_t& shared_memory) {
  for (size_t i = 0; i < 3; ++i) {
    grid[i] = static_cast<uint32_t>(words[i]);
    block[i] = static_cast<uint32_t>(words[3 + i]);
  }
  shared_memory = static_cast<uint32_t>(node.shared_memory);
}

// The parameters of a node lie in its words; a narrow one is the first bytes of a word.
std::vector<void*> parameters_of(const GraphNodeSpec& node, int64_t* words) {
  std::vector<void*> parameters(static_cast<size_t>(node.num_parameters));
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] = words + 6 + i;
  return parameters;
}

CUfunction function_of(Frame& frame, const GraphNodeSpec& node) {
  return static_cast<CUfunction>(frame.device_functions[1 + node.kernel]);
}

void check_launch(CUresult result, Frame& frame, const GraphNodeSpec& node) {
  if (result == cuda::CUDA_SUCCESS) [[likely]]
    return;
  frame.node = node.node;
  throw_launch_error(frame.program->layout().device_kernels.at(node.kernel).name, result);
}

void launch_each(Frame& frame, const GraphSpec& spec, int64_t* words) {
  const auto launch =
      reinterpret_cast<decltype(Driver::cuLaunchKernelEx)>(frame.device_functions[0]);
  for (const GraphNodeSpec& node : spec.nodes) {
    int64_t* own = words + node.first_word;
    if (is_empty(own)) continue;
    CUlaunchConfig config{};
    set_shape(node, own, config.grid, config.block, config.shared_memory);
    config.stream = static_cast<CUstream>(frame.stream);
    std::vector<void*> parameters = parameters_of(node, own);
    check_launch(launch(&config, function_of(frame, node), parameters.data(), nullptr), frame,
                 node);
  }
}

CUDA_KERNEL_NODE_PARAMS node_params(Frame& frame, const GraphNodeSpec& node, const int64_t* words,
                                    std::vector<void*>& parameters) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.function = function_of(frame, node);
  set_shape(node, words, params.grid, params.block, params.shared_memory);
  // A node that does not run now has to be possible all the same.
  if (is_empty(words)) std::fill_n(params.grid, 3, 1);
  params.parameters = parameters.data();
  return params;
}

}  // namespace

DeviceGraph::~DeviceGraph() {
  // At the end of the process the context may be gone; then there is nothing to free.
  if (exec_ != nullptr) cuda::driver().cuGraphExecDestroy(exec_);
  if (graph_ != nullptr) cuda::driver().cuGraphDestroy(graph_);
}

DeviceGraph::DeviceGraph(DeviceGraph&& other) noexcept
    : graph_(std::exchange(other.graph_, nullptr)),
      exec_(std::exchange(other.exec_, nullptr)),
      nodes_(std::move(other.nodes_)),
      enabled_(std::move(other.enabled_)),
      words_(std::move(other.words_)),
      num_calls_(other.num_calls_) {}

void DeviceGraph::launch(Frame& frame, const GraphSpec& spec, int64_t* words) {
  // Of a graph that somebody else makes, launches become nodes.
  if (cuda::is_captured(static_cast<CUstream>(frame.stream))) {
    return launch_each(frame, spec, words);
  }
  const bool is_trial = num_calls_ < kTrials;
  const bool is_graph = wants_graph(frame.program->layout().graphs_always);
  const int64_t begin = is_trial ? hostjit_now() : 0;
  if (is_graph) {
    launch_graph(frame, spec, words);
  } else {
    launch_each(frame, spec, words);
  }
  if (is_trial) note_time(is_graph, hostjit_now() - begin);
}

bool DeviceGraph::wants_graph(bool always) const {
  // A program that runs once needs no graph.
  if (num_calls_ == 0) return false;
  if (always) return true;
  return num_calls_ >= kTrials ? shortest_[1] <= shortest_[0] : num_calls_ % 2 == 1;
}

void DeviceGraph::note_time(bool was_graph, int64_t nanoseconds) {
  // Neither the first launches, which load what is loaded late, nor the making of the graph count.
  if (num_calls_ > 1) {
    int64_t& shortest = shortest_[was_graph ? 1 : 0];
    shortest = std::min(shortest, nanoseconds);
  }
  ++num_calls_;
}

void DeviceGraph::launch_graph(Frame& frame, const GraphSpec& spec, int64_t* words) {
  if (exec_ == nullptr) {
    build(frame, spec, words);
  } else if (!std::equal(words_.begin(), words_.end(), words)) {
    update(frame, spec, words);
  }
  check_launch(cuda::driver().cuGraphLaunch(exec_, static_cast<CUstream>(frame.stream)), frame,
               spec.nodes.front());
}

void DeviceGraph::build(Frame& frame, const GraphSpec& spec, int64_t* words) {
  const Driver& driver = cuda::driver();
  if (graph_ != nullptr) driver.cuGraphDestroy(std::exchange(graph_, nullptr));
  nodes_.clear();
  HOSTJIT_CUDA(cuGraphCreate, &graph_, 0);
  for (const GraphNodeSpec& node : spec.nodes) {
    int64_t* own = words + node.first_word;
    std::vector<void*> parameters = parameters_of(node, own);
    const CUDA_KERNEL_NODE_PARAMS params = node_params(frame, node, own, parameters);
    std::vector<cuda::CUgraphNode> dependencies;
    dependencies.reserve(node.dependencies.size());
    for (const int64_t before : node.dependencies) dependencies.push_back(nodes_[before]);
    cuda::CUgraphNode made = nullptr;
    check_launch(driver.cuGraphAddKernelNode(&made, graph_, dependencies.data(),
                                             dependencies.size(), &params),
                 frame, node);
    nodes_.push_back(made);
  }
  HOSTJIT_CUDA(cuGraphInstantiateWithFlags, &exec_, graph_, 0);
  enabled_.assign(nodes_.size(), true);
  words_.assign(words, words + spec.num_words);
  for (size_t i = 0; i < nodes_.size(); ++i) set_enabled(frame, spec, i, words);
}

void DeviceGraph::update(Frame& frame, const GraphSpec& spec, int64_t* words) {
  for (size_t i = 0; i < spec.nodes.size(); ++i) {
    const GraphNodeSpec& node = spec.nodes[i];
    int64_t* own = words + node.first_word;
    const int64_t count = 6 + node.num_parameters;
    int64_t* known = words_.data() + node.first_word;
    if (std::equal(own, own + count, known)) continue;
    if (!is_empty(own)) {
      std::vector<void*> parameters = parameters_of(node, own);
      const CUDA_KERNEL_NODE_PARAMS params = node_params(frame, node, own, parameters);
      check_launch(cuda::driver().cuGraphExecKernelNodeSetParams(exec_, nodes_[i], &params), frame,
                   node);
    }
    set_enabled(frame, spec, i, words);
    std::copy_n(own, count, known);
  }
}

// A node whose grid is empty does nothing.
void DeviceGraph::set_enabled(Frame& frame, const GraphSpec& spec, size_t node,
                              const int64_t* words) {
  const bool runs = !is_empty(words + spec.nodes[node].first_word);
  if (runs == enabled_[node]) return;
  check_launch(cuda::driver().cuGraphNodeSetEnabled(exec_, nodes_[node], runs ? 1 : 0), frame,
               spec.nodes[node]);
  enabled_[node] = runs;
}

extern "C" {

int32_t hostjit_launch_graph(Frame* frame, int64_t graph, int64_t* words) noexcept {
  return status_of(frame, [&] {
    FrameStorage& storage = FrameStorage::of(frame);
    const std::vector<GraphSpec>& graphs = frame->program->layout().graphs;
    if (storage.graphs.empty()) storage.graphs.resize(graphs.size());
    storage.graphs[graph].launch(*frame, graphs[graph], words);
  });
}

}  // extern "C"

}  // namespace hostjit
