// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <utility>
#include <vector>

#include "bindings/input_binding.h"
#include "bindings/number_results.h"
#include "bindings/open_numbers.h"
#include "bindings/output_spec.h"
#include "bindings/stand_in.h"
#include "bindings/tensor_identities.h"
#include "bindings/watch_list.h"

namespace hostjit {

// Objects outside of the arguments in whose place a call may find others: tensors that fit the
// program, and lists, dicts, tuples and objects of users' classes with the same in them. A program
// that keeps its state in them makes new ones at every call.
class StandIns {
 public:
  // What knows the objects of a specialization. `known`: its containers, in ascending order.
  struct Places {
    WatchList& watches;
    std::vector<InputBinding>& bindings;
    TensorIdentities& identities;
    OpenNumbers& numbers;
    NumberStores& stores;
    OutputSpec& output;
    std::vector<PyObject*>& known;
  };

  // `replaceable`: a sequence of objects that something else keeps alive, and one of tuples among
  // them of which only the length counts. Of all of them, the type is guarded, and the length of
  // lists and tuples; of tensors that the program takes, all that it was compiled for.
  explicit StandIns(PyObject* replaceable);

  // Whether the watches hold once what is found now is taken for what was there. It then is.
  bool take(const Places& places);

  // Whether the last look found what no guard lets pass, so that nobody has to look again.
  bool refused() const { return refused_; }

 private:
  using Pair = std::pair<PyObject*, PyObject*>;

  bool is_replaceable(PyObject* object) const;
  // The object that is planned in the place of another, or null.
  PyObject* planned(PyObject* before) const;
  bool fits(const Places& places, PyObject* before, PyObject* now);
  bool contents_fit(const Places& places, PyObject* before, PyObject* now);
  bool tensor_fits(const Places& places, PyObject* before, PyObject* now);
  // Whether objects that were different ones still are.
  bool are_distinct(const Places& places) const;
  void put_in_place(const Places& places);

  std::vector<PyObject*> replaceable_;
  std::vector<PyObject*> unread_;
  std::vector<Pair> planned_;
  bool refused_ = false;
};

}  // namespace hostjit
