// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "bindings/argument_spec.h"
#include "bindings/stand_in.h"

namespace hostjit {

// Which tensors of a call are one object. Code may ask (`x is y`, id(x), a dict of tensors), and a
// capture has one input for what it meets twice, be it an argument or an attribute.
class TensorIdentities {
 public:
  // As of a call with these leaves. `outside`: a sequence of the tensors that the capture met
  // outside of the arguments; then a call has to have exactly these relations. None: nobody asked,
  // and only leaves that were one object have to be one.
  TensorIdentities(const std::vector<PyObject*>& leaves, PyObject* outside);

  bool hold(const Leaves& leaves) const;

  // Those that the capture met outside of the arguments, borrowed.
  const std::vector<PyObject*>& outside() const { return outside_; }

  // See descriptions.cpp.
  pybind11::dict describe() const;

  // Other tensors are outside now, and the relations are those of this call.
  void renew(const Leaves& leaves, PyObject* outside);

  // Others stand in for tensors outside, which are one object where those were.
  void put_in_place(const StandIn& stand_in);

 private:
  void relate(PyObject* const* leaves, PyObject* outside);
  bool are_distinct(const Leaves& leaves) const;

  // same_as_[i] < i: leaf i was that leaf; i itself: no earlier leaf.
  std::vector<size_t> same_as_;
  std::vector<size_t> firsts_;  // of each object, if all relations count
  // Borrowed, and compared only: while the watches hold, what is outside lives.
  struct Anchor {
    size_t leaf;
    PyObject* tensor;  // what the leaf is; null: none of others_
  };
  std::vector<Anchor> anchors_;
  std::vector<PyObject*> outside_;  // one for each place where the capture met one
  std::vector<PyObject*> others_;   // sorted; those of a type that a leaf without a tensor has
};

}  // namespace hostjit
