// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "ir/program.h"

namespace hostjit {

// Reads the text form and verifies the program:
//
//   program @name(%x: tensor<f32, [4], cpu>) {
//     init { ... }                                     // optional
//     %y = allocate() : tensor<f32, [4], cpu> loc("model.py:3")
//     launch_kernel(kernel="k0", inputs=[%x], outputs=[%y])
//     return %y
//   }
//   kernel @k0 """..."""
//
// Throws Error "line 3, column 7: expected ..., found ...".
Program parse_program(std::string_view text);

// Reads one type, for example "tensor<f32, [4], cpu>".
Type type_from_string(std::string_view text);

}  // namespace hostjit
