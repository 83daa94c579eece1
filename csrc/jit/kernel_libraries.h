// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "ir/program.h"

namespace hostjit {

// The functions of the program's kernels in shared libraries, by the symbols that generated code
// calls them by. Opens the libraries, for good. Throws Error that names the kernel when there is no
// such library or function.
std::map<std::string, void*> library_functions(const Program& program);

}  // namespace hostjit
