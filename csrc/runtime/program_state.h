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

class AtenCallSite;
struct FrameStorage;

// The shared state of one compiled program: its layout, constants, ATen call sites and a pool of
// frames. Thread-safe. Outlives every frame taken from it.
class ProgramState {
 public:
  // `init` runs once on each new frame (hoisted constants); may be null. `evaluator` is what
  // evaluator_main reads through Frame::program; may be null.
  ProgramState(FrameLayout layout, MainFunction init, const void* evaluator = nullptr);
  ~ProgramState();
  ProgramState(const ProgramState&) = delete;
  ProgramState& operator=(const ProgramState&) = delete;

  const FrameLayout& layout() const { return layout_; }
  const void* evaluator() const { return evaluator_; }
  // Before the first call of evaluator_main.
  void set_evaluator(const void* evaluator) { evaluator_ = evaluator; }

  // An idle frame or a new one. One atomic exchange when uncontended. Throws what init raised.
  Frame* take();
  void give_back(Frame* frame) noexcept;
  // Drops what the last call left in a frame: its error and open ranges. Part of give_back.
  static void settle(Frame* frame) noexcept;

  // Rethrows and clears the error that a failed call recorded with `frame`; the text of an
  // at::Error or std exception is unchanged. Use node_note for the place.
  [[noreturn]] static void rethrow(Frame* frame);
  // "in Host IR node 'aten_call aten::sum' (model.py:12)".
  static std::string node_note(const Frame* frame);

  // For externs and the evaluator.
  static void record_error(Frame* frame, std::exception_ptr error) noexcept;
  const AtenCallSite& aten_call(int64_t index) const { return *call_sites_[index]; }
  // Bytes from the first to one past the last element of the slot's type.
  int64_t slot_bytes(int64_t slot) const { return slot_bytes_[slot]; }

 private:
  struct AlignedConstants;

  std::unique_ptr<FrameStorage> make_frame();

  FrameLayout layout_;
  std::vector<int64_t> slot_bytes_;
  MainFunction init_;
  const void* evaluator_;
  std::unique_ptr<AlignedConstants> constants_;  // outlives frames_, which point into it
  std::vector<std::unique_ptr<AtenCallSite>> call_sites_;
  std::atomic<Frame*> idle_{nullptr};
  std::mutex mutex_;
  // Guarded by mutex_: every frame ever made, and the idle ones besides idle_. The capacity of
  // more_idle_ covers all frames, so that give_back never allocates.
  std::vector<std::unique_ptr<FrameStorage>> frames_;
  std::vector<Frame*> more_idle_;
};

}  // namespace hostjit
