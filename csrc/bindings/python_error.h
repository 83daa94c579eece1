// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include "support/check.h"

namespace hostjit {

// hostjit.Error, which pybind11 made for Error.
inline void set_python_error(const Error& error) {
  const auto type = pybind11::module_::import("hostjit._C").attr("Error");
  PyErr_SetString(type.ptr(), error.what());
}

}  // namespace hostjit
