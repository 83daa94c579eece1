// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <unordered_map>
#include <vector>

#include "bindings/open_numbers.h"
#include "bindings/program_rows.h"
#include "bindings/py_ref.h"

namespace hostjit {

// Whether a program may answer calls with these sizes, and these values of some open numbers: what
// a Python callable says, asked once for each.
class RowGuard {
 public:
  // callable(values) -> bool, or None for one that takes all: the values of the program's input
  // symbols, and then of the open numbers at `slots`.
  RowGuard(PyObject* callable, std::vector<size_t> slots);

  const PyRef& callable() const { return callable_; }
  const std::vector<size_t>& slots() const { return slots_; }

  bool accepts(const RowSizes& sizes, const OpenNumbers& numbers, const Leaves& leaves);
  // From now on it does not.
  void refuse(const RowSizes& sizes, const Leaves& leaves) {
    verdicts_[question(sizes, leaves)] = false;
  }

 private:
  RowSizes question(RowSizes sizes, const Leaves& leaves) const;
  bool ask(const RowSizes& asked, const OpenNumbers& numbers, const Leaves& leaves) const;

  PyRef callable_;  // null: takes all
  std::vector<size_t> slots_;
  std::unordered_map<RowSizes, bool, HashRowSizes> verdicts_;
};

}  // namespace hostjit
