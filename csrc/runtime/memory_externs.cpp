// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty_strided.h>

#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "runtime/frame_storage.h"
#include "runtime/tensor_header.h"
#include "runtime/torch_types.h"
#include "support/check.h"

namespace hostjit {
namespace {

void allocate(FrameStorage& storage, int64_t slot) {
  const TensorSpec& type = storage.program->slots()[slot].type;
  const bool is_cpu = type.device.type == DeviceType::kCPU;
  const bool is_on_device = type.device.type == DeviceType::kCUDA &&
                            type.device.index == storage.program->layout().device;
  if (is_cpu || is_on_device) [[likely]] {
    const int64_t bytes = storage.program->slot_bytes(slot);
    at::Tensor tensor = is_cpu ? new_cpu_tensor(type, bytes) : new_cuda_tensor(type, bytes);
    void* data =
        tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->mutable_data();
    storage.device_streams.note_made(tensor);
    storage.put_new(slot, std::move(tensor), data);
    return;
  }
  storage.put(slot,
              at::empty_strided(
                  type.sizes, type.strides,
                  at::TensorOptions().dtype(to_torch(type.dtype)).device(to_torch(type.device))));
}

// Writes the call's result into the tensor that an earlier call returned, if that was kept.
bool allocate_again(FrameStorage& storage, int64_t slot) {
  at::Tensor tensor = storage.kept->take(slot);
  if (!tensor.defined()) return false;
  storage.put(slot, std::move(tensor));
  return true;
}

// A tensor of this frame that autograd knows nothing of: no view of a user's tensor.
bool is_private(const FrameStorage& frame, const at::Tensor* tensor) {
  const at::Tensor* first = frame.tensors.data();
  return tensor >= first && tensor < first + frame.tensors.size() &&
         tensor->unsafeGetTensorImpl()->autograd_meta() == nullptr;
}

}  // namespace

extern "C" {

int32_t hostjit_allocate(Frame* frame, int64_t slot) noexcept {
  return status_of(frame, [&] {
    FrameStorage& storage = FrameStorage::of(frame);
    if (storage.kept != nullptr && allocate_again(storage, slot)) [[unlikely]]
      return;
    allocate(storage, slot);
  });
}

int32_t hostjit_view(Frame* frame, void* source, int64_t offset, int64_t slot) noexcept {
  return status_of(frame, [&] {
    FrameStorage& storage = FrameStorage::of(frame);
    const TensorSpec& type = frame->program->slots()[slot].type;
    const at::Tensor& tensor = *static_cast<at::Tensor*>(source);
    HOSTJIT_ICHECK(c10::toRealValueType(tensor.scalar_type()) == to_torch(real_dtype(type.dtype)),
                   "view of ", c10::toString(tensor.scalar_type()), " as ", type.dtype);
    // A view of a user's tensor may reach the user: autograd must know it as a view. Not of one
    // that gradients are wanted of: results that autograd follows are made from it by the call, and
    // what a program returns is what `detach()` gives.
    const bool is_hidden = is_private(storage, &tensor) || tensor.requires_grad();
    storage.put(slot,
                view_of(tensor, to_torch(type.dtype), type.sizes, type.strides, offset, is_hidden));
  });
}

void hostjit_release(Frame* frame, int64_t slot) noexcept { FrameStorage::of(frame).drop(slot); }

void hostjit_release_input(Frame* frame, int64_t input) noexcept {
  if (frame->donated != nullptr) static_cast<at::Tensor*>(frame->donated)[input].reset();
}

void hostjit_cleanup(Frame* frame) noexcept {
  FrameStorage& storage = FrameStorage::of(frame);
  storage.device_streams.abandon(*frame);
  for (const int64_t slot : storage.call_slots) storage.drop(slot);
  storage.close_ranges();
}

void hostjit_return_slot(Frame* frame, int64_t slot, void** output) noexcept {
  FrameStorage& storage = FrameStorage::of(frame);
  if (storage.kept != nullptr) [[unlikely]]
    storage.kept->keep(slot, storage.tensors[slot]);
  *output = storage.tensors[slot].unsafeReleaseTensorImpl();
  storage.first_elements[slot] = nullptr;
}

void hostjit_return_tensor(Frame*, void* tensor, void** output) noexcept {
  *output = at::Tensor(*static_cast<at::Tensor*>(tensor)).unsafeReleaseTensorImpl();
}

int32_t hostjit_bump_version(Frame* frame, void* tensor) noexcept {
  return status_of(
      frame, [&] { static_cast<at::Tensor*>(tensor)->unsafeGetTensorImpl()->bump_version(); });
}

int32_t hostjit_copy(Frame* frame, void* source, void* out) noexcept {
  return status_of(frame, [&] {
    at::compositeexplicitautograd::copy_(*static_cast<at::Tensor*>(out),
                                         *static_cast<at::Tensor*>(source));
  });
}

void hostjit_fail(Frame* frame, const char* message) noexcept {
  status_of(frame, [&] { throw_error(message); });
}

}  // extern "C"

}  // namespace hostjit
