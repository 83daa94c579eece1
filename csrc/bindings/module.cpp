// SPDX-License-Identifier: Apache-2.0
#include <pybind11/pybind11.h>

#include "bindings/program_bindings.h"

PYBIND11_MODULE(_C, module) {
  module.doc() = "The core of hostjit; hostjit and hostjit.ir are its public face.";
  hostjit::bind_support(module);
  hostjit::bind_program(module);
  hostjit::bind_kernels(module);
  hostjit::bind_call_path(module);
}
