// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace hostjit {

// Adds the type CompiledFunction to `module`; false with a Python error set on failure.
//
//   CompiledFunction(function, owner, *, called_by_dynamo=False)
//
// Calling it looks for a specialization that matches (the last one that did first) and runs it:
// no Python frame. On a miss it calls owner.specialize(self, args, kwargs), which returns a
// Specialization that it keeps and runs, or None to run `function` itself. Attributes that it
// lacks are looked up on `owner`. Bound to an instance it is a CompiledMethod. A compiled nn.Module
// is an instance of its class to isinstance(), has its attributes set on it, and is what its
// methods return that return the module. One that is called by code that Dynamo made hides the
// frames that begin in its calls from Dynamo, which looks at all others.
bool add_compiled_function_type(PyObject* module);

bool is_compiled_function(PyObject* object);

}  // namespace hostjit
