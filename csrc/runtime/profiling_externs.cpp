// SPDX-License-Identifier: Apache-2.0
#include <ATen/record_function.h>

#include <chrono>

#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "runtime/frame_storage.h"

namespace hostjit {

extern "C" {

int64_t hostjit_now() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// What the dispatcher asks for each operator; at::hasCallbacks takes a lock.
bool hostjit_profiling_enabled(Frame* frame) noexcept {
  return frame->program->layout().nvtx ||
         at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
}

// Profiling never fails a call: a range that cannot be opened is left out.
void hostjit_range_push(Frame* frame, const char* label) noexcept {
  try {
    const bool nvtx = frame->program->layout().nvtx;
    FrameStorage::of(frame).ranges.push_back(std::make_unique<ProfilerRange>(label, nvtx));
  } catch (...) {  // NOLINT(bugprone-empty-catch): as said above
  }
}

void hostjit_range_pop(Frame* frame) noexcept {
  auto& ranges = FrameStorage::of(frame).ranges;
  // Empty when profiling began between the push and the pop.
  if (!ranges.empty()) ranges.pop_back();
}

}  // extern "C"

}  // namespace hostjit
