// SPDX-License-Identifier: Apache-2.0
#include "runtime/program_state.h"

#include <c10/core/InferenceMode.h>

#include <atomic>
#include <set>
#include <thread>

#include "frame_fixture.h"
#include "support/check.h"

namespace hostjit {
namespace {

FrameLayout small_layout() {
  FrameLayout layout;
  layout.arena_bytes = 256;
  layout.constants.resize(8);
  const float values[] = {1.5f, -2.0f};
  std::memcpy(layout.constants.data(), values, sizeof(values));
  layout.slots = {
      {SlotKind::kArena, 64, spec(DType::kF32, {2, 3}, {3, 1})},
      {SlotKind::kArena, 64, spec(DType::kF32, {3, 2}, {1, 3})},
      {SlotKind::kConstant, 0, spec(DType::kF32, {2}, {1})},
      call_slot(spec(DType::kI64, {4}, {1})),
      {SlotKind::kFrame, 0, spec(DType::kI64, {4}, {1})},
  };
  layout.nodes = {{"aten_call aten::sum", "model.py:12"}, {"matmul", ""}};
  return layout;
}

TEST(ProgramState, MakesHeadersOverArenaAndConstants) {
  OneFrame frame(small_layout());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(frame.get()->arena) % 64, 0u);
  EXPECT_EQ(frame.slot(0).data_ptr(), frame.get()->arena + 64);
  EXPECT_EQ(frame.get()->slot_data[0], frame.get()->arena + 64);
  frame.slot(0).copy_(at::arange(6, at::kFloat).view({2, 3}));
  EXPECT_TRUE(at::equal(frame.slot(1), frame.slot(0).t()));
  EXPECT_TRUE(at::equal(frame.slot(2), at::tensor({1.5f, -2.0f})));
  EXPECT_FALSE(frame.slot(3).defined());
  EXPECT_EQ(frame.get()->slot_data[3], nullptr);
}

TEST(ProgramState, FramesMadeInInferenceModeServeNormalMode) {
  std::unique_ptr<OneFrame> frame;
  {
    const c10::InferenceMode inference_mode;
    frame = std::make_unique<OneFrame>(small_layout());
  }
  EXPECT_FALSE(frame->slot(0).is_inference());
  frame->slot(0).fill_(1);
}

TEST(ProgramState, TakesTheFrameGivenBackLast) {
  ProgramState state(small_layout(), nullptr, nullptr);
  Frame* first = state.take();
  Frame* second = state.take();
  EXPECT_NE(first, second);
  state.give_back(second);
  EXPECT_EQ(state.take(), second);
  state.give_back(first);
  state.give_back(second);
}

TEST(ProgramState, NeverLendsAFrameTwice) {
  ProgramState state(small_layout(), nullptr, nullptr);
  std::atomic<bool> shared{false};
  std::mutex mutex;
  std::set<Frame*> frames;
  std::vector<std::thread> threads;
  constexpr int kThreads = 8;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      for (int i = 0; i < 5000; ++i) {
        Frame* frame = state.take();
        auto* owner = reinterpret_cast<volatile int64_t*>(frame->arena);
        *owner = id;
        if (i % 64 == 0) std::this_thread::yield();
        if (*owner != id) shared = true;
        if (i % 500 == 0) {
          const std::lock_guard<std::mutex> lock(mutex);
          frames.insert(frame);
        }
        state.give_back(frame);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(shared);
  EXPECT_LE(frames.size(), static_cast<size_t>(kThreads));
}

int32_t fill_slot_4(int64_t, void* const* inputs, void**) {
  auto* frame = static_cast<Frame*>(inputs[-1]);
  if (hostjit_allocate(frame, 4) != 0) return 1;
  static_cast<at::Tensor*>(frame->slots)[4].fill_(7);
  return 0;
}

TEST(ProgramState, CleanupKeepsWhatInitMade) {
  OneFrame frame(small_layout(), &fill_slot_4);
  ASSERT_EQ(hostjit_allocate(frame.get(), 3), 0);
  hostjit_cleanup(frame.get());
  EXPECT_FALSE(frame.slot(3).defined());
  ASSERT_TRUE(frame.slot(4).defined());
  EXPECT_EQ(frame.slot(4).sum().item<int64_t>(), 28);
}

int32_t failing_init(int64_t, void* const* inputs, void**) {
  hostjit_fail(static_cast<Frame*>(inputs[-1]), "no such constant");
  return 1;
}

TEST(ProgramState, TakeThrowsWhatInitRaised) {
  ProgramState state(small_layout(), &failing_init, nullptr);
  for (int i = 0; i < 2; ++i) {
    try {
      state.take();
      FAIL();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "no such constant");
    }
  }
}

TEST(ProgramState, NotesTheNode) {
  OneFrame frame(small_layout());
  EXPECT_EQ(ProgramState::node_note(frame.get()), "");
  frame.get()->node = 0;
  EXPECT_EQ(ProgramState::node_note(frame.get()),
            "in Host IR node 'aten_call aten::sum' (model.py:12)");
  frame.get()->node = 1;
  EXPECT_EQ(ProgramState::node_note(frame.get()), "in Host IR node 'matmul'");
}

TEST(ProgramState, KeepsTheFirstErrorAndForgetsItWhenRethrown) {
  OneFrame frame(small_layout());
  hostjit_fail(frame.get(), "first");
  hostjit_fail(frame.get(), "second");
  EXPECT_EQ(recorded_error(frame.get()), "first");
  hostjit_fail(frame.get(), "third");
  EXPECT_EQ(recorded_error(frame.get()), "third");
  EXPECT_THROW(ProgramState::rethrow(frame.get()), InternalError);
}

}  // namespace
}  // namespace hostjit
