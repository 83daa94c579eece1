// SPDX-License-Identifier: Apache-2.0
// Launches on the null device, by themselves and by graphs.

#include <algorithm>
#include <cstring>

#include "runtime/null_cuda_state.h"

namespace hostjit::cuda {
namespace {

constexpr uint32_t kMostThreads = 1024;

std::string text_of(const uint32_t (&sizes)[3]) {
  return concat("(", sizes[0], ", ", sizes[1], ", ", sizes[2], ")");
}

}  // namespace

bool NullCuda::State::is_possible(const LaunchShape& shape) {
  const auto all_positive = [](const uint32_t (&sizes)[3]) {
    return std::ranges::all_of(sizes, [](uint32_t size) { return size > 0; });
  };
  if (!all_positive(shape.grid) || !all_positive(shape.block)) return false;
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  return threads <= kMostThreads && shape.block[2] <= 64 && shape.grid[0] <= 0x7fffffff &&
         shape.grid[1] <= 0xffff && shape.grid[2] <= 0xffff;
}

KeptLaunch NullCuda::State::keep(CUfunction function, const LaunchShape& shape,
                                 void* const* parameters) const {
  KeptLaunch kept{function, shape, {}};
  for (size_t i = 0; i < function->parameter_bytes.size(); ++i) {
    const auto* bytes = static_cast<const std::byte*>(parameters[i]);
    kept.parameters.emplace_back(bytes, bytes + function->parameter_bytes[i]);
  }
  return kept;
}

void NullCuda::State::run(const KeptLaunch& launch, CUstream_st& stream, int32_t clock_id,
                          const VectorClock& clock, bool from_graph) {
  const CUfunc_st& function = *launch.function;
  const std::string who = concat("'", function.name, "' on stream ", stream.id);
  const auto only_reads = reads.find(function.name);
  const auto known_extents = extents.find(function.name);
  NullLaunch seen{function.name, launch.shape, stream.device, stream.id, from_graph, {}};
  std::vector<void*> parameters;
  std::vector<std::vector<std::byte>> copies = launch.parameters;
  for (size_t i = 0; i < copies.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, copies[i].data(), std::min<size_t>(8, copies[i].size()));
    std::string text = copies[i].size() == 8 ? name_of(bits) : "";
    if (!text.empty()) {
      const bool reads_it = only_reads != reads.end() && only_reads->second.contains(i);
      const bool is_known = known_extents != extents.end() && i < known_extents->second.size();
      access(bits, is_known ? known_extents->second[i] : 1, /*is_write=*/!reads_it, clock_id, clock,
             who);
    } else {
      std::ostringstream number;
      number << "0x" << std::hex << bits;
      text = number.str();
    }
    seen.parameters.push_back(std::move(text));
    parameters.push_back(copies[i].data());
  }
  std::string list;
  for (const std::string& text : seen.parameters) list += concat(list.empty() ? "" : ", ", text);
  const LaunchShape& shape = launch.shape;
  std::string details;
  if (shape.shared_memory) details += concat(", ", shape.shared_memory, " bytes shared");
  if (shape.cluster[0] * shape.cluster[1] * shape.cluster[2] != 1) {
    details += concat(", cluster ", text_of(shape.cluster));
  }
  if (shape.cooperative) details += ", cooperative";
  if (shape.programmatic) details += ", programmatic";
  note(concat("launch ", function.name, "<<<", text_of(shape.grid), ", ", text_of(shape.block),
              details, ">>>(", list, ") on stream ", stream.id, from_graph ? " by a graph" : ""));
  launches.push_back(std::move(seen));
  ++num_launches_;
  const auto emulation = emulations.find(function.name);
  if (emulation != emulations.end()) emulation->second(launch.shape, parameters.data());
}

CUresult NullCuda::State::launch(CUfunction function, const LaunchShape& shape, CUstream stream,
                                 void* const* parameters) {
  CUstream_st* found = stream_of(stream);
  if (found == nullptr || !is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  const CUcontext context = current_context();
  if (context == nullptr || function->module->device != context->device) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (found->device != context->device) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_possible(shape)) return CUDA_ERROR_INVALID_VALUE;
  begin(*found);
  run(keep(function, shape, parameters), *found, found->id, found->clock, /*from_graph=*/false);
  return CUDA_SUCCESS;
}

// Graphs.

CUresult NullCuda::State::create_graph(CUgraph* graph) {
  auto made = std::make_unique<CUgraph_st>();
  *graph = made.get();
  graphs_[*graph] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::destroy_graph(CUgraph graph) {
  return graphs_.erase(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult NullCuda::State::add_node(CUgraphNode* node, CUgraph graph,
                                   std::span<const CUgraphNode> dependencies, CUfunction function,
                                   const LaunchShape& shape, void* const* parameters) {
  if (!graphs_.contains(graph) || !is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  for (const CUgraphNode dependency : dependencies) {
    const bool is_known = std::ranges::any_of(
        graph->nodes, [&](const CUgraphNode_st& known) { return &known == dependency; });
    if (!is_known) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_possible(shape)) return CUDA_ERROR_INVALID_VALUE;
  graph->nodes.push_back(
      {keep(function, shape, parameters), {dependencies.begin(), dependencies.end()}});
  *node = &graph->nodes.back();
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::instantiate(CUgraphExec* exec, CUgraph graph) {
  if (!graphs_.contains(graph)) return CUDA_ERROR_INVALID_HANDLE;
  auto made = std::make_unique<CUgraphExec_st>();
  for (CUgraphNode_st& node : graph->nodes) {
    made->launches.emplace_back(&node, node.launch);
    made->dependencies[&node] = node.dependencies;
  }
  note(concat("instantiate a graph of ", graph->nodes.size(), " nodes"));
  *exec = made.get();
  execs_[*exec] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::destroy_exec(CUgraphExec exec) {
  return execs_.erase(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult NullCuda::State::set_node(CUgraphExec exec, CUgraphNode node, CUfunction function,
                                   const LaunchShape& shape, void* const* parameters) {
  if (!execs_.contains(exec) || !is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  for (size_t i = 0; i < exec->launches.size(); ++i) {
    auto& [known, launch] = exec->launches[i];
    if (known != node) continue;
    if (!is_possible(shape)) return CUDA_ERROR_INVALID_VALUE;
    if (function->module->device != launch.function->module->device) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    launch = keep(function, shape, parameters);
    note(concat("set node ", i, " to ", function->name));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult NullCuda::State::set_enabled(CUgraphExec exec, CUgraphNode node, bool enabled) {
  if (!execs_.contains(exec)) return CUDA_ERROR_INVALID_HANDLE;
  if (!exec->dependencies.contains(node)) return CUDA_ERROR_INVALID_VALUE;
  if (enabled) {
    exec->disabled.erase(node);
  } else {
    exec->disabled.insert(node);
  }
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::launch_graph(CUgraphExec exec, CUstream stream) {
  CUstream_st* found = stream_of(stream);
  if (found == nullptr || !execs_.contains(exec)) return CUDA_ERROR_INVALID_HANDLE;
  note(concat("launch a graph of ", exec->launches.size(), " nodes on stream ", found->id));
  begin(*found);
  // Each node has a clock of its own: what it did not wait for may run beside it.
  std::map<CUgraphNode, VectorClock> clocks;
  VectorClock all = found->clock;
  for (const auto& [node, launch] : exec->launches) {
    VectorClock& clock = clocks[node];
    clock = found->clock;
    for (const CUgraphNode dependency : exec->dependencies.at(node)) clock.join(clocks[dependency]);
    const int32_t id = next_node_++;
    clock.advance(id);
    if (!exec->disabled.contains(node)) run(launch, *found, id, clock, /*from_graph=*/true);
    all.join(clock);
  }
  found->clock = std::move(all);
  return CUDA_SUCCESS;
}

}  // namespace hostjit::cuda
