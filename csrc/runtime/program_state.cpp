// SPDX-License-Identifier: Apache-2.0
#include "runtime/program_state.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/arena_pool.h"
#include "runtime/aten_call.h"
#include "runtime/cuda_device.h"
#include "runtime/device_frame.h"
#include "runtime/device_kernels.h"
#include "runtime/frame_storage.h"
#include "runtime/tensor_header.h"
#include "support/check.h"

namespace hostjit {

namespace {

std::vector<int64_t> bytes_of(const std::vector<SlotSpec>& slots) {
  std::vector<int64_t> bytes;
  bytes.reserve(slots.size());
  for (const SlotSpec& slot : slots) bytes.push_back(extent_in_bytes(slot.type));
  return bytes;
}

// Null before there is an arena.
std::byte* address_in(std::byte* arena, int64_t offset) {
  return arena == nullptr ? nullptr : arena + offset;
}

}  // namespace

std::shared_ptr<const ProgramState::Shared> ProgramState::share(FrameLayout layout) {
  auto shared = std::make_shared<Shared>();
  shared->device_kernels = std::make_unique<DeviceKernels>();
  shared->layout = std::move(layout);
  shared->layout.alignment = std::max<int64_t>(shared->layout.alignment, 64);
  const std::vector<std::byte>& constants = shared->layout.constants;
  shared->constants = allocate_aligned(constants.size(), shared->layout.alignment);
  if (!constants.empty()) std::memcpy(shared->constants.get(), constants.data(), constants.size());
  for (const AtenCallSpec& spec : shared->layout.aten_calls) {
    shared->call_sites.push_back(std::make_shared<AtenCallSite>(spec, shared->layout.slots));
  }
  return shared;
}

ProgramState::ProgramState(FrameLayout layout, MainFunction init, const void* evaluator)
    : shared_(share(std::move(layout))),
      slots_(shared_->layout.slots),
      arena_bytes_(shared_->layout.arena_bytes),
      device_arena_bytes_(shared_->layout.device_arena_bytes),
      slot_bytes_(bytes_of(slots_)),
      init_(init),
      evaluator_(evaluator) {}

ProgramState::ProgramState(const ProgramState& program, RowContents row,
                           std::shared_ptr<ArenaPool> arenas)
    : shared_(program.shared_),
      slots_(std::move(row.slots)),
      arena_bytes_(row.arena_bytes),
      device_arena_bytes_(row.device_arena_bytes),
      row_(std::move(row.table)),
      arenas_(std::move(arenas)),
      slot_bytes_(bytes_of(slots_)),
      init_(program.init_),
      evaluator_(nullptr) {}

ProgramState::~ProgramState() {
  for (const auto& frame : frames_) finish_device(*frame);
}

std::unique_ptr<FrameStorage> ProgramState::make_frame() {
  // Headers made now serve calls of either mode: a normal tensor may be used in inference mode, an
  // inference tensor may not be written outside of it.
  const c10::InferenceMode normal_tensors(/*enabled=*/false);
  const c10::NoGradGuard no_grad;
  auto frame = std::make_unique<FrameStorage>();
  const auto num_slots = static_cast<int64_t>(slots_.size());
  if (arenas_ == nullptr) {
    frame->memory = allocate_aligned(arena_bytes_, shared_->layout.alignment);
  }
  frame->tensors.resize(num_slots);
  frame->first_elements.resize(num_slots);
  frame->arena = frame->memory.get();
  frame->slots = frame->tensors.data();
  frame->slot_data = frame->first_elements.data();
  frame->node = -1;
  frame->program = this;
  frame->row = row_.data();
  frame->stream = nullptr;
  frame->device_arena = nullptr;
  frame->device_functions = nullptr;
  frame->device_streams.resize(*frame, shared_->layout.num_streams, shared_->layout.num_events);
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    const SlotSpec& spec = slots_[slot];
    switch (spec.kind) {
      case SlotKind::kArena:
        frame->put(slot, tensor_over(address_in(frame->arena, spec.offset), spec.type));
        break;
      case SlotKind::kDeviceArena: frame->put(slot, tensor_over(nullptr, spec.type)); break;
      case SlotKind::kConstant:
        frame->put(slot, tensor_over(shared_->constants.get() + spec.offset, spec.type));
        break;
      case SlotKind::kCall: frame->call_slots.push_back(slot); break;
      case SlotKind::kFrame: break;
    }
  }
  const bool has_device = shared_->layout.device >= 0;
  std::optional<DeviceScope> on_device;
  if (has_device) {
    on_device.emplace(*frame);
    frame->device_functions = shared_->device_kernels->load(shared_->layout.device_kernels);
  }
  if (init_ != nullptr) {
    void* const inputs[] = {frame.get()};
    if (init_(/*cache_id=*/0, inputs + 1, /*outputs=*/nullptr) != 0) rethrow(frame.get());
    // Calls on any stream read what init made.
    if (has_device) cuda::synchronize(static_cast<cuda::CUstream>(frame->stream));
  }
  return frame;
}

Frame* ProgramState::take() {
  Frame* frame = take_settled();
  try {
    enter(frame);
  } catch (...) {
    give_back(frame);
    throw;
  }
  return frame;
}

void ProgramState::take_arena(Frame* frame) {
  FrameStorage& storage = FrameStorage::of(frame);
  storage.shared_arena = arenas_->take(arena_bytes_);
  std::byte* memory = storage.shared_arena->memory.get();
  if (frame->arena == memory) [[likely]]
    return;
  frame->arena = memory;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].kind != SlotKind::kArena) continue;
    storage.move_header(static_cast<int64_t>(slot), memory + slots_[slot].offset);
  }
}

Frame* ProgramState::take_settled() {
  if (Frame* frame = idle_.exchange(nullptr, std::memory_order_acquire)) return frame;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!more_idle_.empty()) {
      Frame* frame = more_idle_.back();
      more_idle_.pop_back();
      return frame;
    }
  }
  // Outside the lock: init may run for long, or take frames itself.
  std::unique_ptr<FrameStorage> frame = make_frame();
  const std::lock_guard<std::mutex> lock(mutex_);
  more_idle_.reserve(frames_.size() + 1);
  frames_.push_back(std::move(frame));
  return frames_.back().get();
}

void ProgramState::settle(Frame* frame) noexcept {
  FrameStorage& storage = FrameStorage::of(frame);
  storage.close_ranges();
  storage.kept = nullptr;
  end_device(storage);
  if (storage.shared_arena != nullptr) {
    storage.program->arenas_->give_back(std::exchange(storage.shared_arena, nullptr));
  }
  if (std::exchange(storage.device_memory_is_of_call, false)) storage.device_memory.clear();
  if (storage.error) [[unlikely]]
    storage.error = nullptr;
}

void ProgramState::give_back(Frame* frame) noexcept {
  settle(frame);
  Frame* nobody = nullptr;
  if (idle_.compare_exchange_strong(nobody, frame, std::memory_order_release,
                                    std::memory_order_relaxed)) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  more_idle_.push_back(frame);
}

void ProgramState::rethrow(Frame* frame) {
  const std::exception_ptr error = std::exchange(FrameStorage::of(frame).error, nullptr);
  HOSTJIT_ICHECK(error != nullptr, "a call failed without an error");
  std::rethrow_exception(error);
}

std::string ProgramState::node_note(const Frame* frame) {
  const std::vector<NodeInfo>& nodes = frame->program->layout().nodes;
  if (frame->node < 0 || frame->node >= static_cast<int64_t>(nodes.size())) return "";
  const NodeInfo& node = nodes[frame->node];
  std::string note = concat("in Host IR node '", node.op, "'");
  if (!node.location.empty()) note += concat(" (", node.location, ")");
  return note;
}

void ProgramState::record_error(Frame* frame, std::exception_ptr error) noexcept {
  // The first error is the cause; what clean-up meets afterwards is not.
  std::exception_ptr& recorded = FrameStorage::of(frame).error;
  if (!recorded) recorded = std::move(error);
}

}  // namespace hostjit
