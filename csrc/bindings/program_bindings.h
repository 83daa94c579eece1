// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "ir/program.h"

namespace hostjit {

// A value together with the program that owns it.
struct PyValue {
  std::shared_ptr<Program> program;
  Value* value;
};

// Types, literals, Program, Builder, Op: building, printing, parsing and inspecting Host IR.
void bind_program(pybind11::module_& module);

// DeviceKernel and HostKernel: launches outside of programs.
void bind_kernels(pybind11::module_& module);

// A kernel that keeps `owner`, unless it is None.
Kernel kernel_from_python(const std::string& name, const std::string& text,
                          const std::string& language, const std::string& entry,
                          const std::vector<std::string>& parameters,
                          const pybind11::object& owner);

// CompiledProgram, Specialization, the runtime choice.
void bind_call_path(pybind11::module_& module);

// Knobs and the generated reference pages.
void bind_support(pybind11::module_& module);

}  // namespace hostjit
