// SPDX-License-Identifier: Apache-2.0
#include "bindings/backward_plan.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "support/check.h"

namespace py = pybind11;

namespace hostjit {
namespace {

using Kind = BackwardPlan::Kind;

// The last owner may be a thread that does not hold the GIL.
std::shared_ptr<PyObject> share_across_threads(const py::object& object) {
  if (object.is_none()) return nullptr;
  return {object.inc_ref().ptr(), [](PyObject* held) {
            if (!Py_IsInitialized()) return;
            const py::gil_scoped_acquire gil;
            Py_DECREF(held);
          }};
}

Kind kind_of(const std::string& word) {
  if (word == "input") return Kind::kInput;
  if (word == "result") return Kind::kResult;
  if (word == "saved") return Kind::kSaved;
  if (word == "tangent") return Kind::kTangent;
  if (word == "number") return Kind::kNumber;
  throw_error(concat("backward: unknown kind '", word,
                     "', expected input, result, saved, tangent, number or a tensor"));
}

BackwardPlan::Source source_from_python(const py::handle& description) {
  if (description.is_none()) return {Kind::kSize, 0, {}};
  if (THPVariable_Check(description.ptr())) {
    return {Kind::kConstant, 0, THPVariable_Unpack(description.ptr())};
  }
  const auto parts = py::reinterpret_borrow<py::tuple>(description);
  return {kind_of(parts[0].cast<std::string>()), parts[1].cast<int64_t>(), {}};
}

void check_position(const char* what, int64_t index, size_t limit) {
  HOSTJIT_CHECK(index >= 0 && index < static_cast<int64_t>(limit), "backward: ", what, " ", index,
                " is out of range, there are ", limit);
}

const TensorType& tensor_type(const Value* value) {
  HOSTJIT_CHECK(value->is_tensor(), "backward: %", value->name(), " is no tensor");
  return value->tensor_type();
}

// The forward value that an input of the backward program is; null for what is none. A tangent has
// the type of its result, whatever the strides are that it arrives with.
const Value* value_of(const BackwardPlan& plan, const Program& forward,
                      BackwardPlan::Source source) {
  if (source.kind == Kind::kSaved) {
    check_position("saved", source.index, plan.saved.size());
    source = plan.saved[source.index];
  }
  switch (source.kind) {
    case Kind::kInput:
      check_position("input", source.index, forward.inputs().size());
      return forward.inputs()[source.index];
    case Kind::kTangent:
      check_position("tangent", source.index, plan.differentiable.size());
      HOSTJIT_CHECK(plan.differentiable[source.index], "backward: result ", source.index,
                    " has a tangent, but no gradient");
      return forward.outputs()[source.index];
    case Kind::kResult:
      check_position("result", source.index, forward.outputs().size());
      return forward.outputs()[source.index];
    case Kind::kSaved:
    case Kind::kConstant:
    case Kind::kNumber:
    case Kind::kSize: break;
  }
  return nullptr;
}

// The position among `numbers` of forward input `index`.
int64_t number_at(const BackwardPlan& plan, const Program& forward, int64_t index,
                  const Value* input) {
  check_position("number", index, forward.inputs().size());
  const auto found = std::ranges::find(plan.numbers, static_cast<size_t>(index));
  HOSTJIT_CHECK(found != plan.numbers.end() && forward.inputs()[index]->type() == input->type(),
                "backward: %", input->name(), " is ", to_string(input->type()), ", and gets %",
                forward.inputs()[index]->name(), ", which is ",
                to_string(forward.inputs()[index]->type()));
  return found - plan.numbers.begin();
}

void check_same_shape(const Value* found, const Value* expected) {
  const TensorType& a = tensor_type(found);
  const TensorType& b = tensor_type(expected);
  HOSTJIT_CHECK(a.dtype == b.dtype && a.dims == b.dims && a.device == b.device, "backward: %",
                expected->name(), " takes ", to_string(expected->type()), ", and gets %",
                found->name(), ", which is ", to_string(found->type()));
}

void check_updates(const std::vector<int64_t>& updated, const Program& forward,
                   int64_t num_results) {
  HOSTJIT_CHECK(static_cast<int64_t>(updated.size()) <= num_results, "backward: ", updated.size(),
                " inputs are updated by ", num_results, " results");
  for (size_t i = 0; i < updated.size(); ++i) {
    check_position("updated input", updated[i], forward.inputs().size());
    check_same_shape(forward.outputs()[i], forward.inputs()[updated[i]]);
  }
}

void set_parts(BackwardPlan& plan, const std::vector<std::vector<int64_t>>& parts) {
  if (parts.size() < 2) {
    plan.saved_for.clear();
    return;
  }
  plan.num_parts = static_cast<int64_t>(parts.size());
  const auto num_tangents = plan.tangent_of(plan.num_results);
  plan.part_of.resize(num_tangents, -1);
  for (int64_t part = 0; part < plan.num_parts; ++part) {
    for (const int64_t result : parts[part]) {
      check_position("part's result", result, plan.differentiable.size());
      HOSTJIT_CHECK(plan.differentiable[result], "backward: result ", result,
                    " is in a part, but has no gradient");
      plan.part_of[plan.tangent_of(result)] = part;
    }
  }
  HOSTJIT_CHECK(std::ranges::find(plan.part_of, -1) == plan.part_of.end(),
                "backward: a result with a gradient is in no part");
  HOSTJIT_CHECK(plan.saved_for.size() == plan.saved.size(), "backward: 'saved_for' has ",
                plan.saved_for.size(), " entries for ", plan.saved.size(), " saved tensors");
  for (const std::vector<int64_t>& needing : plan.saved_for) {
    for (const int64_t part : needing) check_position("part", part, parts.size());
  }
}

// The symbols of the forward program that the input symbols of the backward program are.
std::vector<size_t> find_symbols(const CompiledProgram& forward, const ProgramRows& backward) {
  std::vector<size_t> found;
  for (const std::string& name : backward.symbols().input_names()) {
    const auto symbol = forward.rows() ? forward.rows()->symbols().find(name) : std::nullopt;
    HOSTJIT_CHECK(symbol, "backward: takes a size ", name, ", which '", forward.program().name(),
                  "' does not have");
    found.push_back(*symbol);
  }
  return found;
}

}  // namespace

int64_t BackwardPlan::tangent_of(int64_t result) const {
  return std::count(differentiable.begin(), differentiable.begin() + result, true);
}

RowSizes BackwardPlan::sizes_of(const ProgramRow& forward) const {
  RowSizes sizes;
  sizes.reserve(symbols.size());
  for (const size_t symbol : symbols) sizes.push_back(forward.state().row()[symbol]);
  return sizes;
}

BackwardPlan::BackwardPlan(const std::shared_ptr<CompiledProgram>& forward,
                           std::shared_ptr<CompiledProgram> backward, int64_t num_results,
                           std::vector<bool> differentiable, std::vector<int64_t> updated,
                           const py::sequence& saved, const py::sequence& inputs,
                           const py::sequence& gradients,
                           const std::vector<std::vector<int64_t>>& reached,
                           const std::vector<std::vector<int64_t>>& parts,
                           std::vector<std::vector<int64_t>> saved_for, const py::object& again,
                           std::vector<int64_t> unread, std::vector<int64_t> copied, bool draws,
                           RuntimeChoice runtime)
    : name(forward->program().name()),
      program(std::move(backward)),
      runtime(runtime),
      num_results(num_results),
      differentiable(std::move(differentiable)),
      updated(std::move(updated)),
      saved_for(std::move(saved_for)),
      again(share_across_threads(again)),
      unread(std::move(unread)),
      copied(std::move(copied)),
      draws(draws && !again.is_none()) {
  const Program& first = forward->program();
  const Program& second = program->program();
  HOSTJIT_CHECK(num_results >= 0 && num_results <= static_cast<int64_t>(first.outputs().size()),
                "backward: ", num_results, " results of ", first.outputs().size(), " outputs");
  HOSTJIT_CHECK(this->differentiable.size() == static_cast<size_t>(num_results),
                "backward: 'differentiable' has ", this->differentiable.size(), " entries for ",
                num_results, " results");
  check_updates(this->updated, first, num_results);
  for (size_t i = 0; i < first.inputs().size(); ++i) {
    if (first.inputs()[i]->is_tensor()) continue;
    numbers.push_back(i);
    number_is_float.push_back(std::holds_alternative<F64Type>(first.inputs()[i]->type()));
  }
  for (const py::handle description : saved) {
    this->saved.push_back(source_from_python(description));
    HOSTJIT_CHECK(
        this->saved.back().kind == Kind::kInput || this->saved.back().kind == Kind::kResult,
        "backward: only inputs and results are saved");
    value_of(*this, first, this->saved.back());
  }
  HOSTJIT_CHECK(inputs.size() == second.inputs().size(), "backward: ", inputs.size(),
                " sources for ", second.inputs().size(), " inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value* input = second.inputs()[i];
    this->inputs.push_back(source_from_python(py::object(inputs[i])));
    Source& source = this->inputs.back();
    HOSTJIT_CHECK(source.kind != Kind::kInput && source.kind != Kind::kResult,
                  "backward: an input of the backward program is saved, a tangent, a number, a "
                  "constant or a size");
    if (source.kind == Kind::kNumber) {
      source.index = number_at(*this, first, source.index, input);
      expected.emplace_back();
      continue;
    }
    if (const Value* value = value_of(*this, first, source)) check_same_shape(value, input);
    const TensorType& type = tensor_type(input);
    expected.push_back(type.is_static() ? std::optional(ExpectedTensor(type)) : std::nullopt);
  }
  if (program->rows() != nullptr) symbols = find_symbols(*forward, *program->rows());
  HOSTJIT_CHECK(gradients.size() == first.inputs().size(), "backward: ", gradients.size(),
                " gradients for ", first.inputs().size(), " inputs");
  for (size_t i = 0; i < gradients.size(); ++i) {
    const py::object gradient = gradients[i];
    if (gradient.is_none()) continue;
    const auto output = gradient.cast<int64_t>();
    check_position("gradient", output, second.outputs().size());
    tensor_type(second.outputs()[output]);
    edges.push_back(static_cast<int64_t>(i));
    this->gradients.push_back(output);
    std::vector<int64_t>& tangents = this->reached.emplace_back();
    if (reached.empty()) continue;
    for (const int64_t result : reached.at(i)) {
      check_position("tangent", result, this->differentiable.size());
      tangents.push_back(tangent_of(result));
    }
  }
  set_parts(*this, parts);
  if (!this->again) return;
  std::vector<int64_t> written = this->copied;
  written.insert(written.end(), this->unread.begin(), this->unread.end());
  for (int64_t i = 0; i < static_cast<int64_t>(first.inputs().size()); ++i) {
    if (!first.inputs()[i]->is_tensor()) {
      const auto found = std::ranges::find(numbers, static_cast<size_t>(i));
      inputs_for_again.push_back({Kind::kNumber, found - numbers.begin(), {}});
      continue;
    }
    const auto place = std::ranges::find(written, i);
    if (place != written.end()) {
      inputs_for_again.push_back({Kind::kInput, place - written.begin(), {}});
      continue;
    }
    const auto found = std::ranges::find_if(this->saved, [i](const Source& source) {
      return source.kind == Kind::kInput && source.index == i;
    });
    inputs_for_again.push_back({Kind::kSaved, found - this->saved.begin(), {}});
    if (found == this->saved.end()) this->saved.push_back({Kind::kInput, i, {}});
  }
}

}  // namespace hostjit
