// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace hostjit {

// Adds the type CompiledMethod to `module`; false with a Python error set on failure.
//
// What a CompiledFunction binds to an instance: a method like those of Python functions, also to
// isinstance(), hash(), ==, pickle and copy. Questions about what is compiled are those of the
// function, unless its owner has `of`: then what owner.of(instance) returns answers.
bool add_compiled_method_type(PyObject* module);

// The method of an instance; null with a Python error set.
PyObject* make_compiled_method(PyObject* function, PyObject* instance);

}  // namespace hostjit
