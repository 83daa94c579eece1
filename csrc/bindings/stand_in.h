// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <functional>

namespace hostjit {

// What stands in for an object, borrowed: another of its type, or itself. All places of objects are
// to be changed at once, since one may stand where another was.
using StandIn = std::function<PyObject*(PyObject*)>;

}  // namespace hostjit
