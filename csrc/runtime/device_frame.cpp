// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_frame.h"

#include "runtime/cuda_device.h"
#include "runtime/cuda_driver.h"
#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "runtime/tensor_header.h"

namespace hostjit {
namespace {

// An arena belongs to one stream: what is freed may serve that stream's next allocation, and what
// is taken has no work of other streams under way.
void move_arena(FrameStorage& frame) {
  const std::vector<SlotSpec>& slots = frame.program->slots();
  const std::byte* before = std::exchange(frame.device_arena, nullptr);
  frame.device_memory.clear();
  frame.device_memory = cuda::allocate(frame.program->device_arena_bytes());
  frame.device_arena = static_cast<std::byte*>(frame.device_memory.get());
  if (frame.device_arena == before) return;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot].kind != SlotKind::kDeviceArena) continue;
    frame.move_header(static_cast<int64_t>(slot), frame.device_arena + slots[slot].offset);
  }
}

void enter_device(FrameStorage& frame) {
  const int32_t device = frame.program->layout().device;
  const int32_t current = cuda::current_device();
  if (current != device) {
    cuda::set_current_device(device);
    frame.device_before = current;
  }
  cuda::require_context(device);
}

}  // namespace

void begin_device(FrameStorage& frame) {
  const FrameLayout& layout = frame.program->layout();
  enter_device(frame);
  cuda::CUstream stream = cuda::current_stream(layout.device);
  const bool has_arena = frame.device_arena != nullptr && frame.stream == stream;
  frame.changed_stream |= frame.stream != stream && frame.device_functions != nullptr;
  frame.stream = stream;
  if (frame.program->device_arena_bytes() == 0) return;
  if (frame.program->is_of_row()) {
    // There are many rows. PyTorch's allocator gives the memory of one call to the next.
    move_arena(frame);
    frame.device_memory_is_of_call = true;
    return;
  }
  // A graph that somebody makes of this call keeps the addresses: the arena is of the graph's own
  // memory, which PyTorch's allocator hands out meanwhile, and serves this call alone.
  const bool is_captured = cuda::is_captured(stream);
  if (!has_arena || is_captured || frame.arena_is_captured) move_arena(frame);
  frame.arena_is_captured = is_captured;
}

void end_device(FrameStorage& frame) noexcept {
  const int32_t before = std::exchange(frame.device_before, -1);
  if (before >= 0) cuda::set_current_device(before);
}

void finish_device(FrameStorage& frame) noexcept {
  if (!frame.changed_stream) return;
  try {
    enter_device(frame);
    HOSTJIT_CUDA(cuCtxSynchronize);
  } catch (...) {  // NOLINT(bugprone-empty-catch): nothing runs on a device that failed
  }
  end_device(frame);
}

extern "C" {

int32_t hostjit_begin_device(Frame* frame) noexcept {
  return status_of(frame, [&] { begin_device(FrameStorage::of(frame)); });
}

}  // extern "C"

}  // namespace hostjit
