// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "bindings/argument_spec.h"
#include "bindings/open_number.h"
#include "bindings/py_ref.h"
#include "bindings/stand_in.h"

namespace hostjit {

// The open numbers of a specialization, and where a call has them. Made from tuples
//   (type, least, most, position)    the number leaf of the arguments at this position
//   (type, least, most, dict, key)   dict[key], read at every call
//   (type, least, most, list, index) list[index], read at every call
//   (type, least, most, tuple, index) the same of a tuple, for which others may stand in
//   (type, least, most, cell, None)  what a cell holds, read at every call
//   (type, least, most, class, name) an attribute of a class itself, read at every call
//   (type, least, most, object, slot) what a slot holds, given by its descriptor
//   (type, least, most, "value", i)  the i-th of the values of NumberResults
//   (type, least, most, "structure", (i, position))
//                                    the number leaf at this position of the i-th structure
// where type is int or float; least and most are None, or bounds. And of tuples, of which none is a
// number,
//   ("structure", holder, key, by_fields)
// for values in such dicts, lists, cells and classes that are compared as arguments are: see
// ArgumentNode, and
//   ("same", dict, key, slot)
// for what has to be the number that is found elsewhere for a slot.
class OpenNumbers {
 public:
  // Opens those among `arguments`. Throws Error for what is no such description.
  OpenNumbers(PyObject* descriptions, ArgumentSpec& arguments);

  bool any_items() const { return !items_.empty() || !computed_.empty() || !structures_.empty(); }
  bool any_structures() const { return !structures_.empty(); }
  bool any_computed() const { return !computed_.empty(); }

  // Reads those that are found elsewhere than in the arguments; false when one, or a structure, is
  // not what it may be.
  bool read_items(Leaves& leaves) const;
  // The same for those that are among the values of the leaves.
  bool read_computed(Leaves& leaves) const;

  // Whether an item of a tuple is one of them, read there.
  bool has_item(PyObject* tuple, Py_ssize_t index) const;

  // Looks into the containers that stand in for those where it looked.
  void put_in_place(const StandIn& stand_in);

  // One as a new reference.
  PyObject* to_python(size_t slot, const Leaves& leaves) const {
    return numbers_[slot].to_python(leaves.numbers[slot]);
  }

  // See descriptions.cpp.
  pybind11::tuple describe() const;
  pybind11::list describe_places() const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Place {
    PyRef holder;
    PyRef key;

    PyObject* find() const;  // borrowed; null if there is none
  };

  struct Item {
    Place place;
    size_t slot;
    bool is_repeated = false;  // has to be the number of the slot, which an item before it has
  };

  struct Structure {
    Place place;
    ArgumentNode expected;
  };

  struct Computed {
    size_t value;
    size_t slot;
  };
  static Place place_from_python(const pybind11::object& holder, const pybind11::object& key);
  void add_structure(const pybind11::tuple& parts);
  void add_number(const pybind11::tuple& parts, ArgumentSpec& arguments);
  void add_repeated(const pybind11::tuple& parts);
  bool read(PyObject* found, size_t slot, int64_t& bits) const;

  std::vector<OpenNumber> numbers_;
  std::vector<Item> items_;
  std::vector<Structure> structures_;
  std::vector<Computed> computed_;
};

}  // namespace hostjit
