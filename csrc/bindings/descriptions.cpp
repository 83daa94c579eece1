// SPDX-License-Identifier: Apache-2.0
// What a specialization and its parts say of themselves, as Python data: enough to make them again
// in another process, and to compare what was made. Objects in it are the live ones.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <bit>

#include "bindings/backward_plan.h"
#include "bindings/specialization.h"

namespace py = pybind11;

namespace hostjit {
namespace {

py::object borrow(PyObject* object) { return py::reinterpret_borrow<py::object>(object); }

py::object object_of(const PyRef& ref) { return ref ? borrow(ref.get()) : py::none(); }

template <class Nodes>
py::list describe_all(const Nodes& nodes) {
  py::list described;
  for (const auto& node : nodes) described.append(node.describe());
  return described;
}

py::object name_of(RuntimeChoice runtime) {
  switch (runtime) {
    case RuntimeChoice::kKnob: return py::none();
    case RuntimeChoice::kJit: return py::str("jit");
    case RuntimeChoice::kEvaluator: return py::str("evaluator");
  }
  return py::none();
}

py::dict describe_modes(const GlobalState& state) {
  const GlobalState::Modes modes = state.modes();
  py::dict described;
  described["words"] = py::make_tuple(state.included_keys, state.excluded_keys, state.flags);
  described["gradients"] = modes.gradients;
  described["inference"] = modes.inference;
  described["forward_gradients"] = modes.forward_gradients;
  described["deterministic"] = modes.process.deterministic;
  described["default_dtype"] = modes.process.default_dtype;
  described["autocast_cpu"] = modes.autocast_cpu;
  described["autocast_cuda"] = modes.autocast_cuda;
  described["default_device"] =
      modes.default_device ? py::object(py::str(modes.default_device->str())) : py::none();
  return described;
}

// As BackwardPlan's constructor takes it.
py::object describe_source(const BackwardPlan& plan, const BackwardPlan::Source& source) {
  using Kind = BackwardPlan::Kind;
  switch (source.kind) {
    case Kind::kInput: return py::make_tuple("input", source.index);
    case Kind::kResult: return py::make_tuple("result", source.index);
    case Kind::kSaved: return py::make_tuple("saved", source.index);
    case Kind::kTangent: return py::make_tuple("tangent", source.index);
    case Kind::kNumber: return py::make_tuple("number", plan.numbers[source.index]);
    case Kind::kConstant: return py::cast(source.constant);
    case Kind::kSize: break;
  }
  return py::none();
}

}  // namespace

// keys: the raw dispatch key set, which means something to this version of PyTorch only.
py::dict TensorGuard::describe() const {
  py::dict described;
  described["keys"] = keys_.raw_repr();
  described["dtype"] = c10::typeMetaToScalarType(dtype_);
  described["device"] = device_.str();
  described["requires_grad"] = requires_grad_;
  described["sizes"] = std::vector<int64_t>(extents_.begin(), extents_.begin() + rank_);
  described["strides"] = std::vector<int64_t>(extents_.begin() + rank_, extents_.end());
  return described;
}

// ("tensor" | "tensor_of_any_size", type, guard), sizes being those of the example;
// ("identity" | "equal", object); ("float", bits); ("complex", bits, bits); ("open", slot,
// example);
// ("tuple" | "list", type, nodes); ("dict", type, keys, nodes); ("object", type, keys, slots,
// nodes).
py::tuple ArgumentNode::describe() const {
  const py::object type = object_of(type_);
  const auto children = [this] { return describe_all(children_); };
  switch (kind_) {
    case Kind::kTensor: return py::make_tuple("tensor", type, guard_->describe());
    case Kind::kTensorOfAnySize:
      return py::make_tuple("tensor_of_any_size", type, guard_->describe());
    case Kind::kIdentity: return py::make_tuple("identity", object_of(expected_));
    case Kind::kWeakIdentity: return py::make_tuple("identity", borrow(referent()));
    case Kind::kEqual: return py::make_tuple("equal", object_of(expected_));
    case Kind::kOpenNumber: return py::make_tuple("open", open_->slot, object_of(expected_));
    case Kind::kFloat: return py::make_tuple("float", bits_);
    case Kind::kComplex: return py::make_tuple("complex", bits_, imaginary_bits_);
    case Kind::kTuple: return py::make_tuple("tuple", type, children());
    case Kind::kList: return py::make_tuple("list", type, children());
    case Kind::kDict:
    case Kind::kItems: return py::make_tuple("dict", type, object_of(expected_), children());
    case Kind::kEmptyDict: return py::make_tuple("dict", type, py::tuple(), py::tuple());
    case Kind::kUnread: return py::make_tuple("unread");
    case Kind::kObject:
      if (is_module(type_.get())) return py::make_tuple("module", type);
      return py::make_tuple("object", type, object_of(expected_), object_of(slots_), children());
  }
  return py::make_tuple("identity", object_of(expected_));
}

// Positional nodes, and (name, node) of the others.
py::tuple ArgumentSpec::describe() const {
  py::list positional;
  py::list named;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto count = static_cast<size_t>(num_positional_);
    if (i < count) {
      positional.append(nodes_[i].describe());
    } else {
      named.append(py::make_tuple(object_of(names_[i - count]), nodes_[i].describe()));
    }
  }
  return py::make_tuple(positional, named);
}

py::object InputBinding::describe() const {
  switch (kind_) {
    case Kind::kLeaf: return py::int_(leaf_);
    case Kind::kTensor:
    case Kind::kTensorOfAnySize: return object_of(object_);
    case Kind::kGradient: return py::make_tuple("gradient", object_of(object_));
    case Kind::kAttribute: return py::make_tuple("attribute", object_of(object_), object_of(key_));
    case Kind::kNumber:
      return py::make_tuple("number", object_of(object_), object_of(key_),
                            position_ < 0 ? py::none() : py::object(py::int_(position_)));
    case Kind::kScalar: return py::make_tuple("open", slot_);
    case Kind::kHandedOn: return py::make_tuple("handed_on", slot_);
    case Kind::kOpen:
      return py::make_tuple(
          "open", slot_,
          borrow(reinterpret_cast<PyObject*>(is_float_ ? &PyFloat_Type : &PyLong_Type)));
  }
  return py::none();
}

py::object InputBinding::describe_guard() const {
  return guard_ ? py::object(guard_->describe()) : py::none();
}

py::tuple OutputSpec::describe() const {
  switch (kind_) {
    case Kind::kOutput: return py::make_tuple("output", index_);
    case Kind::kNumber: return py::make_tuple("number", index_);
    case Kind::kArgument: return py::make_tuple("argument", index_);
    case Kind::kObject: return py::make_tuple("object", object_of(object_));
    case Kind::kTuple: return py::make_tuple("tuple", describe_all(children_));
    case Kind::kList: return py::make_tuple("list", describe_all(children_));
    case Kind::kDict: return py::make_tuple("dict", object_of(object_), describe_all(children_));
    case Kind::kCall: return py::make_tuple("call", object_of(object_), describe_all(children_));
    case Kind::kItem: return py::make_tuple("item", describe_all(children_));
    case Kind::kAssign: {
      py::list places;
      for (const Place& place : places_)
        places.append(py::make_tuple(object_of(place.dict), object_of(place.name), place.may_stay));
      return py::make_tuple("assign", py::tuple(places), describe_all(children_));
    }
    case Kind::kView:
      return py::make_tuple("view", describe_all(view_->sizes), describe_all(view_->strides),
                            view_->offset.describe(), static_cast<int>(view_->made),
                            describe_all(view_->base_strides), describe_all(children_));
  }
  return py::make_tuple("object", py::none());
}

// (is float, least, most, value) of each, the last None but for those that are computed.
py::tuple OpenNumbers::describe() const {
  std::vector<py::object> values(numbers_.size(), py::none());
  for (const Computed& computed : computed_) values[computed.slot] = py::int_(computed.value);
  py::list numbers;
  for (size_t slot = 0; slot < numbers_.size(); ++slot) {
    const OpenNumber& number = numbers_[slot];
    if (number.is_float) {
      numbers.append(py::make_tuple(true, number.least_float, number.most_float, values[slot]));
    } else {
      numbers.append(py::make_tuple(false, number.least, number.most, values[slot]));
    }
  }
  return py::tuple(numbers);
}

py::object OutputSpec::ViewNumber::describe() const {
  if (position < 0) return py::int_(known);
  return py::make_tuple(position);
}

// What it was made from.
py::tuple NumberResults::describe() const {
  py::list sources;
  py::list steps;
  for (const Source& source : sources_) {
    switch (source.kind) {
      case Kind::kObject: sources.append(py::make_tuple("object", object_of(source.object))); break;
      case Kind::kOpen: sources.append(py::make_tuple("open", source.index)); break;
      case Kind::kSize:
        sources.append(py::make_tuple("size", py::make_tuple(source.index, source.dim)));
        break;
      case Kind::kLeaf: sources.append(py::make_tuple("leaf", source.index)); break;
    }
  }
  for (const Step& step : steps_) {
    steps.append(py::make_tuple(object_of(step.function), step.operands));
  }
  return py::make_tuple(sources, steps);
}

// (slot, dict, key) or (slot, cell, None) of those that are no arguments; (None, dict, key, node)
// of a structure, where the node tells the slots.
py::list OpenNumbers::describe_places() const {
  py::list places;
  for (const Item& item : items_) {
    places.append(
        py::make_tuple(item.slot, object_of(item.place.holder), object_of(item.place.key)));
  }
  for (const Structure& structure : structures_) {
    places.append(py::make_tuple(py::none(), object_of(structure.place.holder),
                                 object_of(structure.place.key), structure.expected.describe()));
  }
  return places;
}

py::list TensorWatches::describe_gradients() const {
  py::list described;
  for (const PyRef& tensor : without_gradient_) {
    described.append(py::make_tuple(object_of(tensor), false));
  }
  for (const PyRef& tensor : with_gradient_) {
    described.append(py::make_tuple(object_of(tensor), true));
  }
  return described;
}

// same_as: for each tensor leaf the first that is the same object. all_count: other leaves have to
// be different objects. anchors: (leaf, id of the tensor outside that it is).
py::dict TensorIdentities::describe() const {
  py::list anchors;
  for (const Anchor& anchor : anchors_) {
    if (anchor.tensor == nullptr) continue;
    anchors.append(py::make_tuple(anchor.leaf, std::bit_cast<uintptr_t>(anchor.tensor)));
  }
  py::dict described;
  described["same_as"] = same_as_;
  described["all_count"] = !firsts_.empty();
  described["anchors"] = anchors;
  return described;
}

py::dict BackwardPlan::describe(size_t num_inputs) const {
  py::list saved_now;
  py::list sources;
  for (const Source& source : saved) saved_now.append(describe_source(*this, source));
  for (const Source& source : inputs) sources.append(describe_source(*this, source));
  std::vector<int64_t> results;  // by tangent
  for (int64_t i = 0; i < num_results; ++i) {
    if (differentiable[i]) results.push_back(i);
  }
  std::vector<std::optional<int64_t>> gradient_of(num_inputs);
  std::vector<std::vector<int64_t>> reached_by(num_inputs);
  for (size_t i = 0; i < edges.size(); ++i) {
    gradient_of[edges[i]] = gradients[i];
    for (const int64_t tangent : reached[i]) reached_by[edges[i]].push_back(results[tangent]);
  }
  py::dict described;
  described["num_results"] = num_results;
  described["differentiable"] = differentiable;
  described["updated"] = updated;
  described["saved"] = saved_now;
  described["inputs"] = sources;
  described["gradients"] = gradient_of;
  described["reached"] = reached_by;
  std::vector<std::vector<int64_t>> results_of(part_of.empty() ? 0 : num_parts);
  for (size_t i = 0; i < part_of.size(); ++i) results_of[part_of[i]].push_back(results[i]);
  described["parts"] = results_of;
  described["saved_for"] = saved_for;
  described["runtime"] = name_of(runtime);
  return described;
}

py::dict Specialization::describe() const {
  py::list guards;
  for (const InputBinding& binding : bindings_) guards.append(binding.describe_guard());
  py::dict described;
  described["modes"] = describe_modes(state_);
  described["arguments"] = arguments_.describe();
  described["objects"] = arguments_.first_of();
  described["numbers"] = numbers_.describe();
  described["results"] = results_.describe();
  described["stores"] = stores_.size();
  described["bindings"] = describe_all(bindings_);
  described["number_places"] = numbers_.describe_places();
  described["gradients"] = watches_.tensors().describe_gradients();
  described["guards"] = guards;
  described["output"] = output_.describe();
  described["revalidate"] = object_of(revalidate_);
  described["always_revalidate"] = always_revalidate_;
  described["mutated"] = mutated_.indices();
  described["identities"] = identities_.describe();
  described["route"] = object_of(route_);
  described["reason"] = reason_;
  described["retries"] = retries_;
  described["in_inference_mode"] = in_inference_mode_;
  described["runtime"] = name_of(runtime_);
  described["reuse_outputs"] = reused_ != nullptr;
  described["row_guard"] = object_of(row_guard_.callable());
  described["condition"] = object_of(condition_);
  described["static_leaves"] = static_leaves_;
  described["aligned"] = describe_all(aligned_);
  described["guarded"] = row_guard_.slots();
  described["backward"] =
      backward_ ? py::object(backward_->describe(bindings_.size())) : py::none();
  return described;
}

}  // namespace hostjit
