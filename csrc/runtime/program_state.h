// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/abi.h"

namespace hostjit {

class ArenaPool;
class AtenCallSite;
class DeviceKernels;
struct FrameStorage;

// The shared state of one compiled program: its layout, constants, ATen call sites and a pool of
// frames. Thread-safe. Outlives every frame taken from it.
class ProgramState {
 public:
  // `init` runs once on each new frame (hoisted constants); may be null. `evaluator` is what
  // evaluator_main reads through Frame::program; may be null.
  ProgramState(FrameLayout layout, MainFunction init, const void* evaluator = nullptr);
  // The state of one row of a program with symbols: calls of its frames are calls of the row.
  // Shares what all rows share with `program`, which takes no frames itself, and keeps it alive.
  // Between calls frames have no arena: see enter.
  ProgramState(const ProgramState& program, RowContents row, std::shared_ptr<ArenaPool> arenas);
  ~ProgramState();
  ProgramState(const ProgramState&) = delete;
  ProgramState& operator=(const ProgramState&) = delete;

  // What all rows share.
  const FrameLayout& layout() const { return shared_->layout; }
  const std::vector<SlotSpec>& slots() const { return slots_; }
  // Of Frame::device_arena. A frame of a row has it for the length of a call, any other for good.
  int64_t device_arena_bytes() const { return device_arena_bytes_; }
  bool is_of_row() const { return arenas_ != nullptr; }
  // RowContents::table; empty without symbols.
  const std::vector<int64_t>& row() const { return row_; }
  const void* evaluator() const { return evaluator_; }
  // Before the first call of evaluator_main.
  void set_evaluator(const void* evaluator) { evaluator_ = evaluator; }

  // An idle frame or a new one. One atomic exchange when uncontended. Throws what init raised.
  Frame* take();
  void give_back(Frame* frame) noexcept;
  // Gives a frame what it lacks between calls, a shared arena. Part of take.
  void enter(Frame* frame) {
    if (arenas_ != nullptr && arena_bytes_ > 0) take_arena(frame);
  }
  // Drops what the last call left in a frame: its error, open ranges and the arenas of a row. Part
  // of give_back.
  static void settle(Frame* frame) noexcept;

  // Rethrows and clears the error that a failed call recorded with `frame`; the text of an
  // at::Error or std exception is unchanged. Use node_note for the place.
  [[noreturn]] static void rethrow(Frame* frame);
  // "in Host IR node 'aten_call aten::sum' (model.py:12)".
  static std::string node_note(const Frame* frame);

  // For externs and the evaluator.
  static void record_error(Frame* frame, std::exception_ptr error) noexcept;
  const AtenCallSite& aten_call(int64_t index) const { return *shared_->call_sites[index]; }
  // Bytes from the first to one past the last element of the slot's type.
  int64_t slot_bytes(int64_t slot) const { return slot_bytes_[slot]; }

 private:
  struct Shared {
    FrameLayout layout;
    std::shared_ptr<std::byte> constants;  // outlive frames, which point into them
    std::vector<std::shared_ptr<const AtenCallSite>> call_sites;
    std::unique_ptr<DeviceKernels> device_kernels;
  };
  static std::shared_ptr<const Shared> share(FrameLayout layout);

  std::unique_ptr<FrameStorage> make_frame();
  Frame* take_settled();
  void take_arena(Frame* frame);

  std::shared_ptr<const Shared> shared_;
  std::vector<SlotSpec> slots_;
  int64_t arena_bytes_;
  int64_t device_arena_bytes_;
  std::vector<int64_t> row_;           // Frame::row
  std::shared_ptr<ArenaPool> arenas_;  // null: each frame has its own
  std::vector<int64_t> slot_bytes_;
  MainFunction init_;
  const void* evaluator_;
  std::atomic<Frame*> idle_{nullptr};
  std::mutex mutex_;
  // Guarded by mutex_: every frame ever made, and the idle ones besides idle_. The capacity of
  // more_idle_ covers all frames, so that give_back never allocates.
  std::vector<std::unique_ptr<FrameStorage>> frames_;
  std::vector<Frame*> more_idle_;
};

}  // namespace hostjit
