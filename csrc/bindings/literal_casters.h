// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include "support/literal.h"

namespace hostjit {

// None, bool, int, float, complex, str, Symbol, Operand and lists or tuples of these.
// Throws Error that names the type of anything else.
Literal literal_from_python(const pybind11::handle& value);
pybind11::object literal_to_python(const Literal& literal);

}  // namespace hostjit
