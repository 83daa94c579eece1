// SPDX-License-Identifier: Apache-2.0
#include "runtime/aten_call.h"
#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "runtime/frame_storage.h"

namespace hostjit {

extern "C" {

int32_t hostjit_aten_call(Frame* frame, int64_t call, void* const* operands) noexcept {
  return status_of(frame, [&] {
    FrameStorage& storage = FrameStorage::of(frame);
    const auto put = [&](int64_t slot, at::Tensor result) {
      storage.device_streams.note_made(result);
      storage.put(slot, std::move(result));
    };
    frame->program->aten_call(call).call(operands, frame->program->slots(), put);
  });
}

}  // extern "C"

}  // namespace hostjit
