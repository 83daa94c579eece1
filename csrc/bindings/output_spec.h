// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <utility>
#include <vector>

#include "bindings/py_ref.h"

namespace hostjit {

// How the result of a call is rebuilt. Made from nested tuples:
//   ("output", i)                the i-th output of the program
//   ("number", i)                the i-th of the values of NumberResults
//   ("argument", i)              the i-th tensor leaf of the arguments, the same object
//   ("object", value)            this object: a constant, a parameter
//   ("tuple" | "list", nodes)    a new container
//   ("dict", keys, nodes)        a new dict
//   ("call", callable, nodes)    callable(*children): namedtuples and dataclasses
//   ("view", sizes, strides, offset, of_several, base_strides, (node,))
//                                a view that autograd knows of the node's tensor, whose strides
//                                are those and from whose first element the offset counts; one of
//                                several that one operator made, or not
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

  // What it was made from.
  pybind11::tuple describe() const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  PyObject* build_node(void* const* outputs, PyObject* const* leaves, const PyRef* values) const;

  // A view of the only child.
  struct View {
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    int64_t offset;
    bool of_several;
    std::vector<int64_t> base_strides;
  };

  PyObject* make_view(const at::Tensor& base) const;

  enum class Kind { kOutput, kNumber, kArgument, kObject, kTuple, kList, kDict, kCall, kView };

  Kind kind_;
  Py_ssize_t index_ = 0;
  PyRef object_;  // the object, the keys, or the callable
  std::shared_ptr<const View> view_;
  std::vector<OutputSpec> children_;
};

}  // namespace hostjit
