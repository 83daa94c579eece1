// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_streams.h"

#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "runtime/frame_storage.h"

namespace hostjit {
namespace {

cuda::CUevent made(cuda::CUevent& event) {
  if (event == nullptr) HOSTJIT_CUDA(cuEventCreate, &event, cuda::CU_EVENT_DISABLE_TIMING);
  return event;
}

void destroy(cuda::CUevent event) {
  // At the end of the process the context may be gone; then there is nothing to free.
  if (event != nullptr) cuda::driver().cuEventDestroy(event);
}

}  // namespace

DeviceStreams::~DeviceStreams() {
  for (const Stream& stream : streams_) destroy(stream.event);
  for (cuda::CUevent event : events_) destroy(event);
}

void DeviceStreams::resize(Frame& frame, int64_t num_streams, int64_t num_events) {
  streams_.resize(static_cast<size_t>(num_streams) + 1);
  handles_.resize(streams_.size(), nullptr);
  events_.resize(static_cast<size_t>(num_events), nullptr);
  frame.streams = handles_.data();
}

cuda::CUstream DeviceStreams::handle(const Frame& frame, int64_t number) const {
  // Without others, nobody asked PyTorch what the caller's stream is.
  return static_cast<cuda::CUstream>(number == 0 && !is_active_ ? frame.stream : handles_[number]);
}

void DeviceStreams::begin(Frame& frame) {
  if (is_active_) return;
  streams_[0].stream = cuda::torch_stream(frame.program->layout().device);
  handles_[0] = frame.stream;
  is_active_ = true;
}

void DeviceStreams::wait_for_current(Frame& frame, int64_t number) {
  Stream& stream = streams_[number];
  HOSTJIT_CUDA(cuEventRecord, made(stream.event), static_cast<cuda::CUstream>(frame.stream));
  // From here on it may have work of this call.
  stream.is_used = true;
  HOSTJIT_CUDA(cuStreamWaitEvent, handle(frame, number), stream.event, 0);
}

void DeviceStreams::fork(Frame& frame, int64_t number) {
  begin(frame);
  Stream& stream = streams_[number];
  if (!stream.stream) {
    stream.stream = cuda::pool_stream(frame.program->layout().device);
    handles_[number] = cuda::handle_of(*stream.stream);
  }
  wait_for_current(frame, number);
}

void DeviceStreams::enter(Frame& frame, int64_t number, const StreamArg& stream) {
  const int32_t device = frame.program->layout().device;
  HOSTJIT_CHECK(stream.device == device, "a stream of cuda:", stream.device,
                ", expected one of cuda:", device, ", where the program runs");
  begin(frame);
  streams_[number].stream = cuda::torch_stream_of(stream.id, device);
  handles_[number] = cuda::handle_of(*streams_[number].stream);
  wait_for_current(frame, number);
}

void DeviceStreams::set(Frame& frame, int64_t number) {
  if (number == current_) return;
  cuda::set_torch_stream(*streams_[number].stream);
  frame.stream = handles_[number];
  current_ = number;
}

void DeviceStreams::record(Frame& frame, int64_t event, int64_t number) {
  HOSTJIT_CUDA(cuEventRecord, made(events_[event]), handle(frame, number));
}

void DeviceStreams::wait(Frame& frame, int64_t event, int64_t number) {
  HOSTJIT_CUDA(cuStreamWaitEvent, handle(frame, number), events_[event], 0);
}

void DeviceStreams::synchronize(Frame& frame, int64_t number) {
  cuda::synchronize(handle(frame, number));
}

void DeviceStreams::join(Frame& frame) {
  for (size_t number = 1; number < streams_.size(); ++number) {
    const Stream& stream = streams_[number];
    if (!stream.is_used) continue;
    HOSTJIT_CUDA(cuEventRecord, stream.event, handle(frame, static_cast<int64_t>(number)));
    HOSTJIT_CUDA(cuStreamWaitEvent, handle(frame, 0), stream.event, 0);
  }
}

void DeviceStreams::end(Frame& frame) {
  set(frame, 0);
  for (Stream& stream : streams_) stream.is_used = false;
  is_active_ = false;
}

void DeviceStreams::leave(Frame& frame) {
  if (!is_active_) return;
  join(frame);
  end(frame);
}

void DeviceStreams::abandon(Frame& frame) noexcept {
  if (!is_active_) return;
  try {
    join(frame);
  } catch (...) {  // NOLINT(bugprone-empty-catch): nothing runs on a device that failed
  }
  try {
    end(frame);
  } catch (...) {  // NOLINT(bugprone-empty-catch): PyTorch only notes it for the thread
  }
}

void DeviceStreams::note_use_by_caller(const at::Tensor& tensor) const {
  if (tensor.is_cuda()) cuda::note_use(tensor.storage().data_ptr(), *streams_[0].stream);
}

extern "C" {

int32_t hostjit_fork_stream(Frame* frame, int64_t number) noexcept {
  return status_of(frame, [&] { FrameStorage::of(frame).device_streams.fork(*frame, number); });
}

int32_t hostjit_enter_stream(Frame* frame, int64_t number, const StreamArg* stream) noexcept {
  return status_of(frame,
                   [&] { FrameStorage::of(frame).device_streams.enter(*frame, number, *stream); });
}

int32_t hostjit_set_stream(Frame* frame, int64_t number) noexcept {
  return status_of(frame, [&] { FrameStorage::of(frame).device_streams.set(*frame, number); });
}

int32_t hostjit_record_event(Frame* frame, int64_t event, int64_t number) noexcept {
  return status_of(frame,
                   [&] { FrameStorage::of(frame).device_streams.record(*frame, event, number); });
}

int32_t hostjit_wait_event(Frame* frame, int64_t event, int64_t number) noexcept {
  return status_of(frame,
                   [&] { FrameStorage::of(frame).device_streams.wait(*frame, event, number); });
}

int32_t hostjit_synchronize(Frame* frame, int64_t number) noexcept {
  return status_of(frame,
                   [&] { FrameStorage::of(frame).device_streams.synchronize(*frame, number); });
}

int32_t hostjit_join_streams(Frame* frame) noexcept {
  return status_of(frame, [&] { FrameStorage::of(frame).device_streams.join(*frame); });
}

int32_t hostjit_leave_streams(Frame* frame) noexcept {
  return status_of(frame, [&] { FrameStorage::of(frame).device_streams.leave(*frame); });
}

}  // extern "C"

}  // namespace hostjit
