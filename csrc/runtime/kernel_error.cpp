// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_error.h"

#include <c10/util/Exception.h>

#include <string>

#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "support/check.h"

namespace hostjit {

void throw_kernel_error(std::string_view error, int64_t value) {
  constexpr std::string_view kIndexError = "IndexError: ";
  constexpr std::string_view kRuntimeError = "RuntimeError: ";
  const bool is_index_error = error.starts_with(kIndexError);
  std::string text(error.substr(is_index_error ? kIndexError.size() : kRuntimeError.size()));
  constexpr std::string_view kPlace = "{}";
  if (const size_t place = text.find(kPlace); place != std::string::npos) {
    text.replace(place, kPlace.size(), std::to_string(value));
  }
  TORCH_CHECK_INDEX(!is_index_error, text);
  TORCH_CHECK(false, text);
}

void throw_parameter_error(std::string_view kernel, int64_t parameter, int64_t value) {
  throw_error(concat("kernel '", kernel, "': parameter ", parameter, " is ", value,
                     ", which its type does not hold"));
}

extern "C" {

void hostjit_fail_kernel(Frame* frame, const char* error, int64_t value) noexcept {
  status_of(frame, [&] { throw_kernel_error(error, value); });
}

void hostjit_fail_parameter(Frame* frame, const char* kernel, int64_t parameter,
                            int64_t value) noexcept {
  status_of(frame, [&] { throw_parameter_error(kernel, parameter, value); });
}

}  // extern "C"

}  // namespace hostjit
