// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace hostjit {

// Bytes as lower-case digits, in lines of 48 bytes.
std::string hexadecimal(std::string_view bytes);

// The bytes of digits, between which there may be blanks. Throws Error.
std::string bytes_of_hexadecimal(std::string_view digits);

}  // namespace hostjit
