// SPDX-License-Identifier: Apache-2.0
#include "passes/cut_graphs.h"

#include <algorithm>
#include <vector>

#include "ir/effects.h"
#include "ir/visitor.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

// What a graph depends on is found pair by pair.
constexpr size_t kMostLaunches = 1024;

// Of an operand of work of the host that the device may wait for.
constexpr int64_t kMostBytesOfHost = 4096;

bool can_be_a_node(const LaunchKernel& launch, const Program& program) {
  return is_cuda(program.kernels().at(launch.kernel).language) && launch.stream == nullptr &&
         launch.cluster.empty() && !launch.cooperative && !launch.programmatic;
}

// Work that the host does at once, in memory that no launch on CUDA touches.
bool is_short_work_of_host(const LaunchKernel& launch, const Program& program) {
  const Kernel& kernel = program.kernels().at(launch.kernel);
  if (kernel.language != KernelLanguage::kLlvmIr || has_signature(kernel)) return false;
  if (!launch.errors.empty()) return false;
  return std::ranges::all_of(launch.all_operands(), [](const Value* operand) {
    if (!operand->is_tensor()) return true;
    const TensorType& type = operand->tensor_type();
    return type.is_static() && type.extent_in_bytes() <= kMostBytesOfHost;
  });
}

// Has no effect that a launch in front of it, done later, could see.
bool may_be_between(const Op& op, const Program& program) {
  const auto* launch = op.get_if<LaunchKernel>();
  if (launch != nullptr) return is_short_work_of_host(*launch, program);
  return op.is<Item>() || op.is<Allocate>() || op.is<Deallocate>() || op.is<View>() ||
         op.is<Size>() || op.is<IndexConstant>() || op.is<IndexBinary>() || op.is<FloatConstant>();
}

void cut(Region& region, const Program& program, int64_t& next_graph) {
  std::vector<LaunchKernel*> run;
  const auto end_run = [&] {
    if (run.size() > 1) {
      for (LaunchKernel* launch : run) launch->graph = next_graph;
      ++next_graph;
    }
    run.clear();
  };
  for (const auto& op : region) {
    auto* launch = op->get_if<LaunchKernel>();
    if (launch != nullptr && can_be_a_node(*launch, program)) {
      run.push_back(launch);
      if (run.size() == kMostLaunches) end_run();
    } else if (!may_be_between(*op, program)) {
      end_run();
    }
    for_each_region(
        *op, [&](std::string_view, NestedRegion& nested) { cut(*nested, program, next_graph); });
  }
  end_run();
}

}  // namespace

void cut_graphs(Program& program) {
  for_each_op(program.body(), [](Op& op) {
    if (auto* launch = op.get_if<LaunchKernel>()) launch->graph = -1;
  });
  int64_t next_graph = 0;
  if (is_enabled(Knob::kCudaGraphs)) cut(program.body(), program, next_graph);
}

bool is_one_graph(const Program& program) {
  if (!is_enabled(Knob::kCudaGraphs)) return false;
  size_t num_launches = 0;
  bool has_ended = false;
  for (const auto& op : program.body()) {
    const auto* launch = op->get_if<LaunchKernel>();
    const bool is_node = launch != nullptr && can_be_a_node(*launch, program);
    if (is_node && has_ended) return false;
    if (!is_node && (works_on_cuda(*op) || has_regions(*op))) return false;
    num_launches += is_node;
    has_ended |= num_launches > 0 && !is_node && !may_be_between(*op, program);
  }
  return num_launches > 1 && num_launches <= kMostLaunches;
}

}  // namespace hostjit
