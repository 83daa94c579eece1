// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/abi.h"
#include "runtime/cuda_types.h"

namespace hostjit {

// The streams and events of one frame, made when they are first used. Number 0 is the caller's
// stream, which was PyTorch's current one when the call began; the others are of PyTorch's pool, or
// inputs. A call that used others has to end with leave().
//
// Members throw what the driver or PyTorch reports unless they are noexcept.
class DeviceStreams {
 public:
  DeviceStreams() = default;
  ~DeviceStreams();
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  // Of the layout of the frame's program, before the first call.
  void resize(Frame& frame, int64_t num_streams, int64_t num_events);

  // Stream `number` of the pool, or the one that is given, waits for the current one.
  void fork(Frame& frame, int64_t number);
  void enter(Frame& frame, int64_t number, const StreamArg& stream);
  // Makes it PyTorch's current stream.
  void set(Frame& frame, int64_t number);
  void record(Frame& frame, int64_t event, int64_t number);
  void wait(Frame& frame, int64_t event, int64_t number);
  void synchronize(Frame& frame, int64_t number);
  // The caller's stream waits for all others that the call has used.
  void join(Frame& frame);
  // Joins, and makes the caller's stream the current one.
  void leave(Frame& frame);
  // The same of a call that failed; when the device has, nothing waits.
  void abandon(Frame& frame) noexcept;

  int64_t current() const { return current_; }
  cuda::CUstream handle(const Frame& frame, int64_t number) const;
  // For a tensor made now, to be used on the caller's stream: its memory is not given to others
  // before that stream is done with it.
  void note_made(const at::Tensor& tensor) const {
    if (current_ != 0) [[unlikely]]
      note_use_by_caller(tensor);
  }

 private:
  struct Stream {
    std::optional<c10::Stream> stream;
    cuda::CUevent event = nullptr;  // what it waits for, and what is waited for
    bool is_used = false;           // by the call under way
  };

  void begin(Frame& frame);
  void end(Frame& frame);
  void wait_for_current(Frame& frame, int64_t number);
  void note_use_by_caller(const at::Tensor& tensor) const;

  std::vector<void*> handles_;  // Frame::streams; the first is the caller's
  std::vector<Stream> streams_;
  std::vector<cuda::CUevent> events_;
  int64_t current_ = 0;
  bool is_active_ = false;  // the call under way has used others than the caller's
};

}  // namespace hostjit
