// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "bindings/compiled_program.h"

namespace hostjit {

// "jit", "evaluator", or none for what the knob says. Throws Error for another name.
RuntimeChoice runtime_from_python(const std::optional<std::string>& name);

// CompiledProgram: what a program was compiled to, and runs of it.
void bind_compiled_program(pybind11::module_& module);

}  // namespace hostjit
