// SPDX-License-Identifier: Apache-2.0
// Streams and events of the null device.

#include <algorithm>

#include "runtime/null_cuda_state.h"

namespace hostjit::cuda {

void VectorClock::join(const VectorClock& other) {
  for (const auto& [stream, tick] : other.ticks_) {
    int64_t& mine = ticks_[stream];
    mine = std::max(mine, tick);
  }
}

int64_t VectorClock::at(int32_t stream) const {
  const auto found = ticks_.find(stream);
  return found == ticks_.end() ? 0 : found->second;
}

CUstream_st* NullCuda::State::stream_of(CUstream handle) {
  if (handle == nullptr) {
    const CUcontext context = current_context();
    return context ? &default_streams_[static_cast<size_t>(context->device)] : nullptr;
  }
  return streams_.contains(handle) ? handle : nullptr;
}

CUstream_st& NullCuda::State::stream_in(CUstream handle, int32_t device) {
  return handle && streams_.contains(handle) ? *handle
                                             : default_streams_[static_cast<size_t>(device)];
}

void NullCuda::State::begin(CUstream_st& stream) {
  stream.clock.join(host_);
  CUstream_st& standard = default_streams_[static_cast<size_t>(stream.device)];
  if (&stream == &standard) {
    for (const auto& [handle, other] : streams_) {
      if (other->is_blocking && other->device == stream.device) stream.clock.join(other->clock);
    }
  } else if (stream.is_blocking) {
    stream.clock.join(standard.clock);
  }
  stream.clock.advance(stream.id);
}

CUresult NullCuda::State::create_stream(CUstream* stream, bool is_blocking) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto made = std::make_unique<CUstream_st>();
  made->id = next_stream_++;
  made->device = current_context()->device;
  made->is_blocking = is_blocking;
  *stream = made.get();
  streams_[*stream] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::destroy_stream(CUstream stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return CUDA_ERROR_INVALID_HANDLE;
  ended_.join(found->second->clock);
  streams_.erase(found);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::synchronize(CUstream stream) {
  const CUstream_st* found = stream_of(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  host_.join(found->clock);
  note(concat("synchronize stream ", found->id));
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::synchronize_context() {
  const CUcontext context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  host_.join(ended_);
  host_.join(default_streams_[static_cast<size_t>(context->device)].clock);
  for (const auto& [handle, stream] : streams_) {
    if (stream->device == context->device) host_.join(stream->clock);
  }
  note(concat("synchronize device ", context->device));
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::create_event(CUevent* event) {
  auto made = std::make_unique<CUevent_st>();
  made->id = next_event_++;
  *event = made.get();
  events_[*event] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::destroy_event(CUevent event) {
  return events_.erase(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult NullCuda::State::record(CUevent event, CUstream stream) {
  CUstream_st* found = stream_of(stream);
  if (found == nullptr || !events_.contains(event)) return CUDA_ERROR_INVALID_HANDLE;
  begin(*found);
  event->recorded = found->clock;
  event->num_launches = num_launches_;
  note(concat("record event ", event->id, " on stream ", found->id));
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::wait(CUstream stream, CUevent event) {
  CUstream_st* found = stream_of(stream);
  if (found == nullptr || !events_.contains(event)) return CUDA_ERROR_INVALID_HANDLE;
  note(concat("stream ", found->id, " waits for event ", event->id));
  begin(*found);
  if (event->recorded) {
    found->clock.join(*event->recorded);
  } else {
    fault(
        concat("stream ", found->id, " waits for event ", event->id, ", which was never recorded"));
  }
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::synchronize(CUevent event) {
  if (!events_.contains(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->recorded) host_.join(*event->recorded);
  note(concat("synchronize event ", event->id));
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::elapsed(float* milliseconds, CUevent begin, CUevent end) {
  if (!events_.contains(begin) || !events_.contains(end)) return CUDA_ERROR_INVALID_HANDLE;
  if (!begin->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = static_cast<float>(end->num_launches - begin->num_launches);
  return CUDA_SUCCESS;
}

}  // namespace hostjit::cuda
