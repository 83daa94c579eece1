// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace hostjit {

// A mistake of the caller: wrong argument, malformed text, unknown option.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A mistake of ours: an invariant of hostjit does not hold.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Joins its arguments with operator<<.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

[[noreturn]] void throw_error(const std::string& message);
[[noreturn]] void throw_internal_error(const char* file, int line, const std::string& message);

}  // namespace hostjit

// Throws Error with the joined message when the caller broke `condition`.
#define HOSTJIT_CHECK(condition, ...)                         \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      ::hostjit::throw_error(::hostjit::concat(__VA_ARGS__)); \
  } while (false)

// Throws InternalError with file, line and the joined message when we broke `condition`.
#define HOSTJIT_ICHECK(condition, ...)                                                     \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      ::hostjit::throw_internal_error(__FILE__, __LINE__, ::hostjit::concat(__VA_ARGS__)); \
  } while (false)
