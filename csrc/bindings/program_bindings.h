// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "ir/program.h"

namespace hostjit {

// A value together with the program that owns it.
struct PyValue {
  std::shared_ptr<Program> program;
  Value* value;
};

// Types, literals, Program, Builder, Op: building, printing, parsing and inspecting Host IR.
void bind_program(pybind11::module_& module);

// DeviceKernel: launches outside of programs.
void bind_kernels(pybind11::module_& module);

// CompiledProgram, Specialization, the runtime choice.
void bind_call_path(pybind11::module_& module);

// Knobs and the generated reference pages.
void bind_support(pybind11::module_& module);

}  // namespace hostjit
