// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ir/program.h"

namespace hostjit {

// The text form, which parse_program reads back to an equal program. A field that equals its
// default is not printed.
std::string to_string(const Program& program);

// The same without source locations and addresses of functions: what the program computes, in any
// process. Equal texts, equal code.
std::string portable_text(const Program& program);

// One line: "%h = allocate() : tensor<f32, [1, 64], cpu>".
std::string to_string(const Op& op);

}  // namespace hostjit
