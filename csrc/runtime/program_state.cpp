// SPDX-License-Identifier: Apache-2.0
#include "runtime/program_state.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>

#include "runtime/aten_call.h"
#include "runtime/frame_storage.h"
#include "runtime/tensor_header.h"
#include "support/check.h"

namespace hostjit {

struct ProgramState::AlignedConstants {
  AlignedMemory memory;
};

ProgramState::ProgramState(FrameLayout layout, MainFunction init, const void* evaluator)
    : layout_(std::move(layout)), init_(init), evaluator_(evaluator) {
  layout_.alignment = std::max<int64_t>(layout_.alignment, 64);
  const std::vector<std::byte>& constants = layout_.constants;
  constants_ = std::make_unique<AlignedConstants>(
      AlignedConstants{allocate_aligned(constants.size(), layout_.alignment)});
  if (!constants.empty()) {
    std::memcpy(constants_->memory.get(), constants.data(), constants.size());
  }
  for (const SlotSpec& slot : layout_.slots) slot_bytes_.push_back(extent_in_bytes(slot.type));
  for (const AtenCallSpec& spec : layout_.aten_calls) {
    call_sites_.push_back(std::make_unique<AtenCallSite>(spec, layout_.slots));
  }
}

ProgramState::~ProgramState() = default;

std::unique_ptr<FrameStorage> ProgramState::make_frame() {
  // Headers made now serve calls of either mode: a normal tensor may be used in inference mode, an
  // inference tensor may not be written outside of it.
  const c10::InferenceMode normal_tensors(/*enabled=*/false);
  const c10::NoGradGuard no_grad;
  auto frame = std::make_unique<FrameStorage>();
  const auto num_slots = static_cast<int64_t>(layout_.slots.size());
  frame->memory = allocate_aligned(layout_.arena_bytes, layout_.alignment);
  frame->tensors.resize(num_slots);
  frame->first_elements.resize(num_slots);
  frame->arena = frame->memory.get();
  frame->slots = frame->tensors.data();
  frame->slot_data = frame->first_elements.data();
  frame->node = -1;
  frame->program = this;
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    const SlotSpec& spec = layout_.slots[slot];
    switch (spec.kind) {
      case SlotKind::kArena:
        frame->put(slot, tensor_over(frame->arena + spec.offset, spec.type));
        break;
      case SlotKind::kConstant:
        frame->put(slot, tensor_over(constants_->memory.get() + spec.offset, spec.type));
        break;
      case SlotKind::kCall: frame->call_slots.push_back(slot); break;
      case SlotKind::kFrame: break;
    }
  }
  if (init_ != nullptr) {
    void* const inputs[] = {frame.get()};
    if (init_(/*cache_id=*/0, inputs + 1, /*outputs=*/nullptr) != 0) rethrow(frame.get());
  }
  return frame;
}

Frame* ProgramState::take() {
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
