// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/access.h"
#include "ir/op_verifier.h"

namespace hostjit {

// Runs a kernel of the program. Its parameters are the data pointers of inputs, in_out and
// outputs, then the scalars. A CPU kernel loops by itself and takes no grid; or its work is
// grid=[items, 1, 1] independent items, which threads may share, at least block=[items, 1, 1]
// each: then two more parameters, i64, are the first item to do and the end of them. Without items
// it does not run.
// A CPU kernel with `errors` can fail: after the scalars it has a parameter that points at two i64,
// 0 at entry. When it fails, it makes them the number, from 1, of one of the errors, and the
// integer that belongs at its {}; threads may do so at the same time. An error is Python's class
// and text: "IndexError: index {} is out of bounds". What the kernel wrote is lost then.
//
// A kernel with a signature has parameters in an order of its own: `parameters` tells which operand
// each of them is, counting inputs, in_out, outputs and scalars; all of them in this order, if it
// is empty. An integer that its parameter does not hold fails the call. On the CPU the range of
// items follows them.
//
// On CUDA a kernel has a grid of blocks of threads, each of at most three sizes, and
// shared_memory, in bytes, for each block; a grid with a size of 0 does not run. `cluster` is the
// number of blocks of a cluster, `cooperative` blocks wait for one another, and a `programmatic`
// launch may begin before the one in front of it has ended. Without a stream it goes to the current
// one. `graph` is set by cut_graphs: launches with the same number, 0 or more, are one CUDA graph,
// done at the last of them.
//
// in_place=[i, o, ...] are pairs of an input and an output that may be the same memory: the kernel
// writes no byte of outputs[o] before it has read the same byte of inputs[i] for the last time.
struct LaunchKernel {
  static constexpr OpInfo kInfo{"launch_kernel", "Runs a kernel on the memory of its operands."};
  std::string kernel = {};
  std::vector<Value*> inputs = {};
  std::vector<Value*> in_out = {};
  std::vector<Value*> outputs = {};
  std::vector<Value*> scalars = {};
  std::vector<int64_t> in_place = {};
  std::vector<Dim> grid = {};
  std::vector<Dim> block = {};
  std::vector<int64_t> cluster = {};
  std::vector<int64_t> parameters = {};
  std::vector<std::string> errors = {};
  int64_t shared_memory = 0;
  int64_t graph = -1;
  bool cooperative = false;
  bool programmatic = false;
  Value* stream = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.attribute("kernel", self.kernel, Required{});
    visit.operands("inputs", self.inputs, Access::kRead);
    visit.operands("in_out", self.in_out, Access::kReadWrite);
    visit.operands("outputs", self.outputs, Access::kWrite);
    visit.operands("scalars", self.scalars, Access::kRead);
    visit.attribute("in_place", self.in_place, std::vector<int64_t>{});
    visit.attribute("grid", self.grid, std::vector<Dim>{});
    visit.attribute("block", self.block, std::vector<Dim>{});
    visit.attribute("cluster", self.cluster, std::vector<int64_t>{});
    visit.attribute("parameters", self.parameters, std::vector<int64_t>{});
    visit.attribute("errors", self.errors, std::vector<std::string>{});
    visit.attribute("shared_memory", self.shared_memory, int64_t{0});
    visit.attribute("graph", self.graph, int64_t{-1});
    visit.attribute("cooperative", self.cooperative, false);
    visit.attribute("programmatic", self.programmatic, false);
    visit.optional_operand("stream", self.stream, Access::kRead);
  }
  void verify(const OpVerifier& verifier) const;

  // Inputs, in_out and outputs, then scalars.
  std::vector<Value*> all_operands() const;
  // The operand of each parameter of a kernel with a signature.
  std::vector<Value*> parameter_operands() const;
  // Where the tensors are. Of a launch with a tensor.
  Device device() const;
};

}  // namespace hostjit
