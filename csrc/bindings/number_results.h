// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "bindings/open_numbers.h"
#include "bindings/py_ref.h"

namespace hostjit {

// Numbers that a call returns or stores, or that its views have. Functions of Python compute them
// from the open numbers, from sizes of the arguments and from what these tensors hold, so that they
// are of the type and the value that the user's code gives them. Made from a tuple
//   (sources, steps)
// where a source is ("open", slot), ("size", (leaf, dim)) of a tensor leaf of the arguments,
// ("leaf", leaf), which is that tensor, or ("object", value), a step is (callable, operands), and
// an operand is a position among the sources and then the steps before it.
class NumberResults {
 public:
  // Throws Error for what is no such description, of `num_leaves` tensor leaves.
  NumberResults(PyObject* description, size_t num_leaves);

  size_t size() const { return sources_.size() + steps_.size(); }

  // Gives the leaves the value of each source and step, if they have none; false with a Python
  // error set.
  bool compute(const OpenNumbers& numbers, Leaves& leaves) const;

  // See descriptions.cpp.
  pybind11::tuple describe() const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  enum class Kind { kObject, kOpen, kSize, kLeaf };
  struct Source {
    Kind kind;
    PyRef object;
    size_t index;    // of an open number, or of a leaf
    size_t dim = 0;  // of that leaf
  };
  struct Step {
    PyRef function;
    std::vector<size_t> operands;
  };

  // A new reference, or null with a Python error set.
  static PyObject* value_of(const Source& source, const OpenNumbers& numbers, const Leaves& leaves);

  std::vector<Source> sources_;
  std::vector<Step> steps_;
};

// Where a call leaves such values once it has its result, in this order. Made from tuples
//   (dict, key, value)
//   (list, index, value)
//   (cell, None, value)
// where `value` is a position among the sources and steps.
class NumberStores {
 public:
  // Throws Error for what is no such description, of `num_values` values.
  NumberStores(PyObject* descriptions, size_t num_values);

  size_t size() const { return stores_.size(); }

  // False with a Python error set.
  bool put(const NumberValues& values) const;

  // Stores in the dicts and lists that stand in for those where it stored.
  void put_in_place(const StandIn& stand_in);

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Store {
    PyRef holder;
    PyRef key;
    size_t value;
  };

  std::vector<Store> stores_;
};

}  // namespace hostjit
