// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include "bindings/refusals.h"
#include "bindings/specialization_list.h"

namespace hostjit {

// What a CompiledFunction, the Python object, is made of.
struct CompiledFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* owner;
  PyObject* weak_references;
  PyObject* attributes;  // its own __dict__; that of a module stays the module's
  bool is_module;        // `function` is an nn.Module
  bool is_original;      // `function` is what was there before: calls go to it with `compile` off
  SpecializationList* specializations;
  Refusals refusals;
};

inline CompiledFunction* as_compiled(PyObject* object) {
  return reinterpret_cast<CompiledFunction*>(object);
}

// Its vectorcall: the way of every call.
PyObject* call_compiled_function(PyObject* object, PyObject* const* values, size_t nargsf,
                                 PyObject* kwnames);

// The same of one that Dynamo calls, among frames that it looks at: it looks at none of this call.
PyObject* call_among_frames(PyObject* object, PyObject* const* values, size_t nargsf,
                            PyObject* kwnames);

// A call with the items of `list`, which is empty from then on: what nobody else holds goes as soon
// as the call no longer needs it.
PyObject* call_boxed(PyObject* object, PyObject* list);

}  // namespace hostjit
