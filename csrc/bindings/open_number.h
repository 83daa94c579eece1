// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <bit>
#include <cstdint>
#include <limits>

namespace hostjit {

// A number of which calls may bring different values, an int or a float within bounds. As 64 bits,
// in a call's Leaves and in the array of a program's inputs, it is an int64_t or a double.
struct OpenNumber {
  bool is_float = false;
  int64_t least = std::numeric_limits<int64_t>::min();  // of an int
  int64_t most = std::numeric_limits<int64_t>::max();
  double least_float = std::numeric_limits<double>::lowest();  // of a float
  double most_float = std::numeric_limits<double>::max();

  bool is_kind_of(PyObject* value) const {
    return is_float ? PyFloat_CheckExact(value) : PyLong_CheckExact(value);
  }

  // Reads a value of the kind; false for one that it may not be.
  bool read(PyObject* value, int64_t& bits) const {
    if (is_float) {
      const double number = PyFloat_AS_DOUBLE(value);
      bits = std::bit_cast<int64_t>(number);
      return number >= least_float && number <= most_float;  // not of NaN
    }
    int overflow = 0;
    bits = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0 && bits >= least && bits <= most;
  }

  // A new reference.
  PyObject* to_python(int64_t bits) const {
    return is_float ? PyFloat_FromDouble(std::bit_cast<double>(bits)) : PyLong_FromLongLong(bits);
  }
};

}  // namespace hostjit
