// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/abi.h"
#include "runtime/externs.h"
#include "runtime/frame_storage.h"
#include "runtime/program_state.h"

namespace hostjit {

inline TensorSpec spec(DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  return {dtype, Device{}, std::move(sizes), std::move(strides)};
}

inline SlotSpec call_slot(TensorSpec type) { return {SlotKind::kCall, 0, std::move(type)}; }

// The text of the error that a failed extern recorded.
inline std::string recorded_error(Frame* frame) {
  try {
    ProgramState::rethrow(frame);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

// One frame of a program whose slots and ATen calls the test gives.
class OneFrame {
 public:
  explicit OneFrame(FrameLayout layout, MainFunction init = nullptr)
      : state_(std::make_unique<ProgramState>(std::move(layout), init, nullptr)),
        frame_(state_->take()) {}
  ~OneFrame() { state_->give_back(frame_); }
  OneFrame(const OneFrame&) = delete;
  OneFrame& operator=(const OneFrame&) = delete;

  Frame* get() { return frame_; }
  ProgramState& state() { return *state_; }
  at::Tensor& slot(int64_t index) { return static_cast<at::Tensor*>(frame_->slots)[index]; }

 private:
  std::unique_ptr<ProgramState> state_;
  Frame* frame_;
};

}  // namespace hostjit
