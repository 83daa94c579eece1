// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace hostjit {

// Prepares the type of what make_module_method returns; false with a Python error set on failure.
bool prepare_module_method_type();

// A method of a module that was found through the CompiledFunction of the module: calls it, and
// returns the CompiledFunction where it returns the module, as `compiled.eval()` and
// `compiled.to(device)` do. Otherwise it is like the method, also to isinstance(), hash(), ==,
// pickle and copy. Null with a Python error set.
PyObject* make_module_method(PyObject* compiled, PyObject* method);

}  // namespace hostjit
