// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "bindings/argument_spec.h"
#include "bindings/open_number.h"
#include "bindings/py_ref.h"

namespace hostjit {

// The open numbers of a specialization, and where a call has them. Made from tuples
//   (type, least, most, position)    the number leaf of the arguments at this position
//   (type, least, most, dict, key)   dict[key], read at every call
//   (type, least, most, list, index) list[index], read at every call
//   (type, least, most, cell, None)  what a cell holds, read at every call
// where type is int or float; least and most are None, or bounds.
class OpenNumbers {
 public:
  // Opens those among `arguments`. Throws Error for what is no such description.
  OpenNumbers(PyObject* descriptions, ArgumentSpec& arguments);

  bool any_items() const { return !items_.empty(); }

  // Reads those that are no arguments; false when one is not what it may be.
  bool read_items(Leaves& leaves) const;

  // One as a new reference.
  PyObject* to_python(size_t slot, const Leaves& leaves) const {
    return numbers_[slot].to_python(leaves.numbers[slot]);
  }

  // See descriptions.cpp.
  pybind11::tuple describe() const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Item {
    PyRef holder;
    PyRef key;
    size_t slot;

    PyObject* find() const;  // borrowed; null if there is none
  };

  std::vector<OpenNumber> numbers_;
  std::vector<Item> items_;
};

}  // namespace hostjit
