// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/Support/Error.h>

#include <string>
#include <utility>

#include "support/check.h"

// Takes an llvm::Error or llvm::Expected<T>: throws InternalError with LLVM's message when it holds
// an error, and gives the T otherwise. `what` says what was being done.
#define HOSTJIT_LLVM_CHECK(expression, what) \
  ::hostjit::check_llvm((expression), __FILE__, __LINE__, (what))

namespace hostjit {

inline void check_llvm(llvm::Error error, const char* file, int line, const std::string& what) {
  if (error) throw_internal_error(file, line, what + ": " + llvm::toString(std::move(error)));
}

template <class T>
T check_llvm(llvm::Expected<T> result, const char* file, int line, const std::string& what) {
  if (!result) check_llvm(result.takeError(), file, line, what);
  return std::move(*result);
}

template <class T>
T& check_llvm(llvm::Expected<T&> result, const char* file, int line, const std::string& what) {
  if (!result) check_llvm(result.takeError(), file, line, what);
  return *result;
}

}  // namespace hostjit
