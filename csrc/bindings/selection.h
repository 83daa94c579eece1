// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace hostjit {

// Adds the type Selection to `module`; false with a Python error set on failure.
//
//   Selection(function, wanted)
//
// A callable that calls `function` with some of its arguments: `wanted` has a pair for each that
// `function` takes, (position, anything) or (None, a constant). No Python frame. Its attributes are
// those of `function`, but for `call_boxed(list)`, which selects as well and empties the list.
bool add_selection_type(PyObject* module);

}  // namespace hostjit
