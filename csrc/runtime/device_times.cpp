// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_times.h"

#include <algorithm>
#include <cmath>

#include "runtime/cuda_driver.h"
#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "runtime/frame_storage.h"

namespace hostjit {

DeviceTimes::~DeviceTimes() {
  // At the end of the process the context may be gone; then there is nothing to free.
  for (const Event& event : events_) {
    if (event.event != nullptr) cuda::driver().cuEventDestroy(event.event);
  }
}

void DeviceTimes::note(cuda::CUstream stream, size_t event) {
  if (events_.size() <= event) events_.resize(event + 1);
  Event& found = events_[event];
  if (found.event == nullptr) HOSTJIT_CUDA(cuEventCreate, &found.event, 0);
  HOSTJIT_CUDA(cuEventRecord, found.event, stream);
  found.is_recorded = true;
}

void DeviceTimes::read(int64_t num_nodes, int64_t* nanoseconds) {
  const size_t count = std::min(static_cast<size_t>(num_nodes), events_.size() / 2);
  for (size_t node = 0; node < count; ++node) {
    Event& begin = events_[2 * node];
    Event& end = events_[2 * node + 1];
    if (!begin.is_recorded || !end.is_recorded) continue;
    HOSTJIT_CUDA(cuEventSynchronize, end.event);
    float milliseconds = 0;
    HOSTJIT_CUDA(cuEventElapsedTime, &milliseconds, begin.event, end.event);
    nanoseconds[node] = std::llround(static_cast<double>(milliseconds) * 1e6);
    begin.is_recorded = end.is_recorded = false;
  }
}

extern "C" {

int32_t hostjit_note_device_time(Frame* frame, int64_t event, int64_t stream) noexcept {
  return status_of(frame, [&] {
    FrameStorage& storage = FrameStorage::of(frame);
    storage.device_times.note(storage.device_streams.handle(*frame, stream),
                              static_cast<size_t>(event));
  });
}

int32_t hostjit_read_device_times(Frame* frame, int64_t num_nodes, int64_t* nanoseconds) noexcept {
  return status_of(frame,
                   [&] { FrameStorage::of(frame).device_times.read(num_nodes, nanoseconds); });
}

}  // extern "C"

}  // namespace hostjit
