// SPDX-License-Identifier: Apache-2.0
#include "ir/launch_ops.h"

#include <algorithm>
#include <limits>

#include "ir/attribute_text.h"

namespace hostjit {
namespace {

void require_extent(const OpVerifier& verifier, std::string_view name,
                    const std::vector<Dim>& extent, int64_t least) {
  const bool fits = std::ranges::all_of(
      extent, [&](const Dim& size) { return !size.is_constant() || size.value >= least; });
  if (extent.empty() || (extent.size() == 3 && fits)) return;
  verifier.fail(name, concat("is ", to_string(extent)),
                least > 0 ? "[] or three positive sizes" : "[] or three sizes");
}

// A device counts blocks and threads in 31 bits.
void require_possible(const OpVerifier& verifier, std::string_view name,
                      const std::vector<Dim>& extent) {
  const bool fits = std::ranges::all_of(extent, [](const Dim& size) {
    return !size.is_constant() || size.value <= std::numeric_limits<int32_t>::max();
  });
  if (!fits) verifier.fail(name, concat("is ", to_string(extent)), "sizes of at most 2147483647");
}

void require_items(const OpVerifier& verifier, std::string_view name,
                   const std::vector<Dim>& extent) {
  if (extent.empty() || (extent[1] == Dim(1) && extent[2] == Dim(1))) return;
  verifier.fail(name, concat("is ", to_string(extent)), "[] or [items, 1, 1] on the CPU");
}

void require_pairs(const OpVerifier& verifier, const LaunchKernel& op) {
  const auto fail = [&](const std::string& expected) {
    verifier.fail("in_place", concat("is ", to_string(op.in_place)), expected);
  };
  if (op.in_place.size() % 2 != 0) fail("pairs of an input and an output");
  for (size_t i = 0; i < op.in_place.size(); i += 2) {
    const int64_t input = op.in_place[i];
    const int64_t output = op.in_place[i + 1];
    if (input < 0 || input >= static_cast<int64_t>(op.inputs.size()) || output < 0 ||
        output >= static_cast<int64_t>(op.outputs.size())) {
      fail(concat("positions among ", op.inputs.size(), " inputs and ", op.outputs.size(),
                  " outputs"));
    }
    const TensorType& read = op.inputs[input]->tensor_type();
    const TensorType& written = op.outputs[output]->tensor_type();
    if (size_in_bytes(read.dtype) != size_in_bytes(written.dtype)) {
      fail(concat("elements of one size, inputs[", input, "] has ", read.dtype, ", outputs[",
                  output, "] ", written.dtype));
    }
  }
}

void require_parameters(const OpVerifier& verifier, const LaunchKernel& op) {
  const size_t num_operands = op.all_operands().size();
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    if (op.parameters[i] >= 0 && static_cast<size_t>(op.parameters[i]) < num_operands) continue;
    verifier.fail({"parameters", i}, concat("is ", op.parameters[i]),
                  concat("a position among ", num_operands, " operands"));
  }
}

void require_cluster(const OpVerifier& verifier, const std::vector<int64_t>& cluster) {
  const bool fits =
      cluster.size() == 3 && std::ranges::all_of(cluster, [](int64_t size) { return size > 0; });
  if (cluster.empty() || fits) return;
  verifier.fail("cluster", concat("is ", to_string(cluster)), "[] or three positive sizes");
}

void require_errors(const OpVerifier& verifier, const std::vector<std::string>& errors) {
  for (size_t i = 0; i < errors.size(); ++i) {
    const std::string& error = errors[i];
    if (error.starts_with("IndexError: ") || error.starts_with("RuntimeError: ")) continue;
    verifier.fail({"errors", i}, concat("is ", quoted(error)),
                  "\"IndexError: ...\" or \"RuntimeError: ...\"");
  }
}

}  // namespace

void LaunchKernel::verify(const OpVerifier& verifier) const {
  verifier.require(!kernel.empty(), "kernel", "is empty", "the name of a kernel");
  const Device* device = nullptr;
  const auto require_operands = [&](std::string_view name, const std::vector<Value*>& values,
                                    bool written) {
    for (size_t i = 0; i < values.size(); ++i) {
      const OperandName element(name, i);
      const TensorType& type = verifier.require_tensor(element, values[i]);
      if (!device) device = &type.device;
      verifier.require_device(element, values[i], *device);
      if (written) verifier.require_no_internal_overlap(element, values[i]);
    }
  };
  require_operands("inputs", inputs, /*written=*/false);
  require_operands("in_out", in_out, /*written=*/true);
  require_operands("outputs", outputs, /*written=*/true);
  for (size_t i = 0; i < scalars.size(); ++i) {
    verifier.require_scalar({"scalars", i}, scalars[i], {"index", "f64"});
  }
  require_pairs(verifier, *this);
  require_extent(verifier, "grid", grid, /*least=*/0);
  require_extent(verifier, "block", block, /*least=*/1);
  if (shared_memory < 0) {
    verifier.fail("shared_memory", concat("is ", shared_memory), "0 or more bytes");
  }
  if (graph < -1) verifier.fail("graph", concat("is ", graph), "-1 or the number of a graph");
  require_errors(verifier, errors);
  require_cluster(verifier, cluster);
  require_parameters(verifier, *this);
  if (stream) verifier.require_scalar("stream", stream, {"stream"});
  if (stream && graph >= 0) verifier.fail("graph", concat("is ", graph), "-1 with a stream");
  if (device && device->type == DeviceType::kCPU) {
    require_items(verifier, "grid", grid);
    require_items(verifier, "block", block);
    if (!block.empty() && grid.empty()) {
      verifier.fail("block", concat("is ", to_string(block)), "[] without a grid on the CPU");
    }
    if (shared_memory != 0) {
      verifier.fail("shared_memory", concat("is ", shared_memory), "0 on the CPU");
    }
    verifier.require(!stream, "stream", "is given", "none on the CPU");
    if (graph >= 0) verifier.fail("graph", concat("is ", graph), "-1 on the CPU");
    verifier.require(cluster.empty(), "cluster", "is given", "none on the CPU");
    verifier.require(!cooperative, "cooperative", "is true", "false on the CPU");
    verifier.require(!programmatic, "programmatic", "is true", "false on the CPU");
  } else if (device) {
    if (grid.empty()) verifier.fail("grid", "is []", "three sizes off the CPU");
    if (block.empty()) verifier.fail("block", "is []", "three positive sizes off the CPU");
    require_possible(verifier, "grid", grid);
    require_possible(verifier, "block", block);
    if (!in_place.empty()) {
      verifier.fail("in_place", concat("is ", to_string(in_place)), "[] off the CPU");
    }
    if (!errors.empty()) {
      verifier.fail("errors", concat("is ", attribute_to_string(errors)), "[] off the CPU");
    }
  }
}

std::vector<Value*> LaunchKernel::all_operands() const {
  std::vector<Value*> operands = inputs;
  for (const auto* more : {&in_out, &outputs, &scalars}) {
    operands.insert(operands.end(), more->begin(), more->end());
  }
  return operands;
}

std::vector<Value*> LaunchKernel::parameter_operands() const {
  std::vector<Value*> operands = all_operands();
  if (parameters.empty()) return operands;
  std::vector<Value*> ordered;
  ordered.reserve(parameters.size());
  for (const int64_t position : parameters) {
    ordered.push_back(operands[static_cast<size_t>(position)]);
  }
  return ordered;
}

Device LaunchKernel::device() const {
  for (const auto* operands : {&inputs, &in_out, &outputs}) {
    if (!operands->empty()) return operands->front()->tensor_type().device;
  }
  HOSTJIT_ICHECK(false, "launch_kernel '", kernel, "' has no tensor");
}

}  // namespace hostjit
