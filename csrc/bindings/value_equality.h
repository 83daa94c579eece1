// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace hostjit {

// Tuples whose items are all there is to them: plain ones, torch.Size, namedtuples.
bool is_plain_tuple(PyObject* value);

// Values of which callers make a new object for every call.
bool compares_by_value(PyObject* value);

// The keys of a dict that PyDict_Next visits in iteration order: an OrderedDict whose items were
// moved is none of them.
bool iterates_as_stored(PyObject* dict);

// Whether two objects are one, or of one type and the same to all code that is given them. Only
// types of C code are compared by their values: code of users does not run.
bool equal(PyObject* a, PyObject* b);

}  // namespace hostjit
