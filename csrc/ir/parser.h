// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "ir/program.h"

namespace hostjit {

// Reads the text form and verifies the program.
// Throws Error "line 3, column 7: expected ..., found ...".
Program parse_program(std::string_view text);

}  // namespace hostjit
