// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "bindings/py_ref.h"

namespace hostjit {

// What a capture assumed about Python state outside the arguments, checked at each call in a few
// nanoseconds per entry. Two kinds of failure: a fact that no longer holds, and a version that
// moved, after which the facts behind it are to be checked again by the slow check.
class WatchList {
 public:
  // Any change of the dict (attributes, parameters, submodules, hooks of a module).
  void add_dict_version(PyObject* dict);
  // Any change of a class's attributes.
  void add_type_version(PyObject* type);
  // dict[key] is this very object (a global); `expected` null: the key is absent.
  void add_dict_item(PyObject* dict, PyObject* key, PyObject* expected);
  // The closure cell holds this very object.
  void add_cell(PyObject* cell, PyObject* expected);
  // The list or tuple holds these very objects.
  void add_items(PyObject* sequence, PyObject* items);

  // True when every dict item, cell and sequence is as it was.
  bool facts_hold() const;
  // True when no version moved since the last refresh.
  bool versions_hold() const;
  void refresh_versions();

 private:
  struct Version {
    PyRef object;
    bool is_type;
    uint64_t seen;
  };
  struct Item {
    PyRef dict;
    PyRef key;
    PyRef expected;
  };
  struct Pair {
    PyRef container;
    PyRef expected;
  };

  std::vector<Version> versions_;
  std::vector<Item> items_;
  std::vector<Pair> cells_;
  std::vector<Pair> sequences_;
};

}  // namespace hostjit
