// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hostjit {

// The linker's digest of the library or program that `address` is in; empty when it was linked
// without one. Two builds with one build id have the same content.
std::string build_id(const void* address);

}  // namespace hostjit
