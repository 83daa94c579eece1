// SPDX-License-Identifier: Apache-2.0
#include "support/check.h"

namespace hostjit {

void throw_error(const std::string& message) { throw Error(message); }

void throw_internal_error(const char* file, int line, const std::string& message) {
  throw InternalError(concat(file, ":", line, ": internal error: ", message));
}

}  // namespace hostjit
