// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/compiled_program.h"
#include "bindings/expected_tensor.h"

namespace hostjit {

// How the gradients of one forward program are computed: what a call keeps for later, and what the
// backward program makes of it. Immutable; every autograd node of the specialization shares it.
//
// "Result k" is output k of the forward program. The first `num_results` are the user's, the rest
// is only kept. "Input i" is its input i. The first of the user's results are the new values of the
// inputs that the call writes and that gradients flow through.
struct BackwardPlan {
  // kSize: a tensor without elements, that tells a size which no other input has. kNumber: one of
  // `numbers`.
  enum class Kind { kInput, kResult, kSaved, kTangent, kConstant, kSize, kNumber };
  struct Source {
    Kind kind;
    int64_t index = 0;
    at::Tensor constant;
  };

  // Throws Error when the parts do not fit the two programs. `saved`: tuples ("input", i) or
  // ("result", k). `inputs`, one per input of the backward program: ("saved", position),
  // ("tangent", result), ("number", i) for input i of the forward program, which is no tensor, a
  // constant tensor or None for a size. `updated`: see below. `gradients`, one per forward input:
  // an output of the backward program or None. `reached`, one per forward input or none at all: the
  // results whose gradients its own is made of. `parts`, per part the results of it, and
  // `saved_for`, per saved tensor the parts that need it, or none at all: see below. `again`,
  // `unread`, `copied` and `draws` likewise.
  BackwardPlan(const std::shared_ptr<CompiledProgram>& forward,
               std::shared_ptr<CompiledProgram> backward, int64_t num_results,
               std::vector<bool> differentiable, std::vector<int64_t> updated,
               const pybind11::sequence& saved, const pybind11::sequence& inputs,
               const pybind11::sequence& gradients,
               const std::vector<std::vector<int64_t>>& reached,
               const std::vector<std::vector<int64_t>>& parts,
               std::vector<std::vector<int64_t>> saved_for, const pybind11::object& again,
               std::vector<int64_t> unread, std::vector<int64_t> copied, bool draws,
               RuntimeChoice runtime);

  // The arguments of its constructor in Python, but for the programs.
  pybind11::dict describe(size_t num_inputs) const;

  // The tangent of a result: those without a gradient have none.
  int64_t tangent_of(int64_t result) const;

  // What the backward program's symbols are where the forward program ran by this row.
  RowSizes sizes_of(const ProgramRow& forward) const;

  std::string name;  // of the forward program, for messages
  std::shared_ptr<CompiledProgram> program;
  RuntimeChoice runtime;
  int64_t num_results;
  std::vector<bool> differentiable;  // per result of the user's
  std::vector<int64_t> updated;      // the input whose new value result k is, for the first results
  std::vector<Source> saved;
  std::vector<Source> inputs;
  // The forward inputs that are no tensors: a node keeps what they were.
  std::vector<size_t> numbers;
  std::vector<bool> number_is_float;
  // What each of `inputs` has to be; nullopt where the row says it, and for numbers.
  std::vector<std::optional<ExpectedTensor>> expected;
  std::vector<size_t> symbols;     // per input symbol of the backward: one of the forward
  std::vector<int64_t> edges;      // forward inputs that have a gradient
  std::vector<int64_t> gradients;  // per edge: the output of the backward program
  // Per edge, tangents: without all of them there is no gradient. Empty: there always is.
  std::vector<std::vector<int64_t>> reached;
  // Per tangent: its part. Results of one part have operators in common whose saved tensors eager
  // frees when gradients have passed; those of another are not touched by that. Empty: one part.
  std::vector<int64_t> part_of;
  int64_t num_parts = 1;
  std::vector<std::vector<int64_t>> saved_for;  // per saved tensor, where there are several parts
  // again(inputs, tangents, state) -> gradients, one per forward input: computes the same by
  // PyTorch's operators, in grad mode with a graph of its own. Null where the forward may not be
  // run twice, and None in the constructor: then second derivatives are an error. Inputs that are
  // not saved anyway are kept for it.
  std::shared_ptr<PyObject> again;
  // Forward inputs that calls write, and of whose values nothing is made that `again` returns: they
  // are kept whatever is written to them later.
  std::vector<int64_t> unread;
  // Other forward inputs that calls write: copies are made before.
  std::vector<int64_t> copied;
  // The forward draws from the default generator: `state` is what that was when the call began.
  bool draws;
  std::vector<Source> inputs_for_again;  // per forward input: saved, a number, or a written one
};

}  // namespace hostjit
