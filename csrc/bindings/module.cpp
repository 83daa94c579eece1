// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>

PYBIND11_MODULE(_C, module) { module.doc() = "hostjit core"; }
