// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace hostjit {

// Throws the exception that PyTorch has for an error of a launch_kernel: its Python class, and its
// text with `value` in the place of {}.
[[noreturn]] void throw_kernel_error(std::string_view error, int64_t value);

// Throws Error: an integer parameter of a launch of `kernel` has fewer bits than its value.
[[noreturn]] void throw_parameter_error(std::string_view kernel, int64_t parameter, int64_t value);

}  // namespace hostjit
