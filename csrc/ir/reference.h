// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hostjit {

// The reference page of all ops in Markdown: name, meaning, and a table of the fields with kind,
// access and default. Derived from the declared fields.
std::string op_reference();

}  // namespace hostjit
