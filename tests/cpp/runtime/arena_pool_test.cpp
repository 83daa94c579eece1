// SPDX-License-Identifier: Apache-2.0
#include "runtime/arena_pool.h"

#include <gtest/gtest.h>

#include "runtime/frame_fixture.h"

namespace hostjit {
namespace {

TEST(ArenaPool, AnArenaServesTheNextCall) {
  ArenaPool pool(/*alignment=*/64);
  Arena* first = pool.take(100);
  EXPECT_GE(first->bytes, 100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->memory.get()) % 64, 0u);
  pool.give_back(first);
  EXPECT_EQ(pool.take(50), first);
  EXPECT_GE(first->bytes, 100);
}

TEST(ArenaPool, CallsInFlightHaveTheirOwn) {
  ArenaPool pool(/*alignment=*/64);
  Arena* first = pool.take(10);
  Arena* second = pool.take(10);
  EXPECT_NE(first, second);
  pool.give_back(first);
  pool.give_back(second);
  EXPECT_NE(pool.take(10), pool.take(10));
}

TEST(ArenaPool, GrowsForALargerRow) {
  ArenaPool pool(/*alignment=*/64);
  Arena* arena = pool.take(10);
  pool.give_back(arena);
  EXPECT_EQ(pool.take(1 << 20), arena);
  EXPECT_GE(arena->bytes, 1 << 20);
}

// A header in the arena, as of an operand of an operator.
FrameLayout layout() {
  FrameLayout layout;
  layout.slots = {{SlotKind::kArena, 0, {DType::kF32, Device{}, {}, {}}}};
  return layout;
}

RowContents row(int64_t size, int64_t offset) {
  RowContents contents;
  contents.table = {size};
  contents.arena_bytes = offset + 4 * size;
  contents.slots = {{SlotKind::kArena, offset, spec(DType::kF32, {size}, {1})}};
  return contents;
}

at::Tensor& slot(Frame* frame) { return static_cast<at::Tensor*>(frame->slots)[0]; }

TEST(ArenaPool, RowsHaveHeadersOverOneArena) {
  const ProgramState program(layout(), nullptr);
  auto pool = std::make_shared<ArenaPool>(64);
  ProgramState small(program, row(3, 0), pool);
  ProgramState large(program, row(1000, 64), pool);
  for (int call = 0; call < 2; ++call) {
    for (ProgramState* state : {&small, &large}) {
      Frame* frame = state->take();
      const int64_t size = state == &small ? 3 : 1000;
      EXPECT_EQ(frame->row[0], size);
      EXPECT_EQ(slot(frame).sizes(), at::IntArrayRef({size}));
      EXPECT_EQ(slot(frame).data_ptr(), frame->arena + (state == &small ? 0 : 64));
      slot(frame).fill_(1.0);
      state->give_back(frame);
    }
  }
  Frame* first = small.take();
  Frame* second = large.take();
  EXPECT_NE(first->arena, second->arena);
  EXPECT_EQ(slot(second).data_ptr(), second->arena + 64);
  small.give_back(first);
  large.give_back(second);
}

}  // namespace
}  // namespace hostjit
