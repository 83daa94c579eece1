// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/frame_storage.h"

namespace hostjit {

// Makes a frame ready for work on its program's CUDA device: the device and its context are the
// thread's, Frame::stream is PyTorch's current one, Frame::device_arena is memory for it.
void begin_device(FrameStorage& frame);

// Makes the device current again that was before begin_device.
void end_device(FrameStorage& frame) noexcept;

// Before a frame goes: what init made belongs to the stream that made it, and is used again there
// at once. Waits for other streams, if calls were on such.
void finish_device(FrameStorage& frame) noexcept;

// From begin_device to end_device.
class DeviceScope {
 public:
  explicit DeviceScope(FrameStorage& frame) : frame_(frame) { begin_device(frame); }
  ~DeviceScope() { end_device(frame_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  FrameStorage& frame_;
};

}  // namespace hostjit
