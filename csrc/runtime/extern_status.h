// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "runtime/program_state.h"

namespace hostjit {

// Runs `body` and makes its exception a status: 0, or 1 with the error recorded with the frame.
template <class Body>
int32_t status_of(Frame* frame, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return 0;
  } catch (...) {
    ProgramState::record_error(frame, std::current_exception());
    return 1;
  }
}

}  // namespace hostjit
