// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/py_ref.h"
#include "bindings/stand_in.h"

namespace hostjit {

// How the result of a call is rebuilt. Made from nested tuples:
//   ("output", i)                the i-th output of the program
//   ("number", i)                the i-th of the values of NumberResults
//   ("argument", i)              the i-th tensor leaf of the arguments, the same object
//   ("object", value)            this object: a constant, a parameter
//   ("tuple" | "list", nodes)    a new container
//   ("dict", keys, nodes)        a new dict
//   ("call", callable, nodes)    callable(*children): namedtuples and dataclasses
//   ("item", (node,))            the number in the node's tensor, as `Tensor.item` gives it
//   ("assign", places, nodes)    what the first node makes. Objects are given their attributes
//                                behind that: of each place (dict, name, may_stay), dict[name]
//                                becomes what the next node makes, unless the one behind it, if
//                                it may stay what it is, makes True
//   ("view", sizes, strides, offset, made, base_strides, (node,))
//                                a view that autograd knows of the node's tensor, whose strides
//                                are those and from whose first element the offset counts; `made`
//                                is the CreationMeta that it has in eager mode. Each number is an
//                                int, or (i,) for the i-th of the values of NumberResults
class OutputSpec {
 public:
  // Throws Error for an unknown kind and IndexError's kin for positions out of range.
  OutputSpec(PyObject* description, Py_ssize_t num_outputs, Py_ssize_t num_leaves,
             Py_ssize_t num_values);

  // A new reference, or null with a Python error set. `outputs` are owned PyObject*; one that is
  // the whole result is taken from there.
  PyObject* build(void** outputs, PyObject* const* leaves, const PyRef* values) const {
    if (kind_ == Kind::kOutput) [[likely]]
      return static_cast<PyObject*>(std::exchange(outputs[index_], nullptr));
    return build_node(outputs, leaves, values);
  }

  // Whether some argument is in it.
  bool has_arguments() const {
    return kind_ == Kind::kArgument || std::ranges::any_of(children_, &OutputSpec::has_arguments);
  }

  // Returns what stands in for objects instead of these.
  void put_in_place(const StandIn& stand_in);

  // What it was made from.
  pybind11::tuple describe() const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  PyObject* build_node(void* const* outputs, PyObject* const* leaves, const PyRef* values) const;

  struct ViewNumber {
    int64_t known;
    Py_ssize_t position;  // of a value; -1: it is known

    ViewNumber(const pybind11::handle& description, Py_ssize_t num_values);
    int64_t value(const PyRef* values) const;
    pybind11::object describe() const;
  };
  using ViewNumbers = std::vector<ViewNumber>;
  static ViewNumbers view_numbers(const pybind11::handle& description, Py_ssize_t num_values);

  // A view of the only child.
  struct View {
    ViewNumbers sizes;
    ViewNumbers strides;
    ViewNumber offset;
    torch::autograd::CreationMeta made;
    ViewNumbers base_strides;
  };

  struct Place {
    PyRef dict;
    PyRef name;
    bool may_stay;
  };

  PyObject* make_view(const at::Tensor& base, const PyRef* values) const;
  PyObject* assign(void* const* outputs, PyObject* const* leaves, const PyRef* values) const;

  enum class Kind {
    kOutput,
    kNumber,
    kArgument,
    kObject,
    kTuple,
    kList,
    kDict,
    kCall,
    kItem,
    kAssign,
    kView
  };

  Kind kind_;
  Py_ssize_t index_ = 0;
  PyRef object_;  // the object, the keys, or the callable
  std::shared_ptr<const View> view_;
  std::vector<Place> places_;
  std::vector<OutputSpec> children_;
};

}  // namespace hostjit
