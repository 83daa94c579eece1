// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "ir/program.h"

namespace hostjit {

// The C functions that are kernels of the program, in shared libraries and elsewhere in this
// process, by the symbols that generated code calls them by. Opens the libraries, for good. Throws
// Error that names the kernel when there is no such library or function.
std::map<std::string, void*> external_functions(const Program& program);

}  // namespace hostjit
