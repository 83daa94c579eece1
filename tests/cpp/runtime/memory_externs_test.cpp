// SPDX-License-Identifier: Apache-2.0
#include <ATen/record_function.h>

#include "counting_allocator.h"
#include "frame_fixture.h"

namespace hostjit {
namespace {

FrameLayout layout() {
  FrameLayout layout;
  layout.arena_bytes = 64;
  layout.slots = {
      call_slot(spec(DType::kF32, {2, 3}, {1, 2})),
      call_slot(spec(DType::kF32, {3}, {1})),
      {SlotKind::kArena, 0, spec(DType::kF64, {2, 3}, {3, 1})},
      call_slot(spec(DType::kBF16, {0, 4}, {4, 1})),
      call_slot(spec(DType::kF32, {}, {})),
  };
  AtenCallSpec failing;
  failing.target = "aten::mm";
  failing.arguments = {Literal{Literal::Operand{0}}, Literal{Literal::Operand{1}}};
  failing.operand_is_tensor = {true, true};
  failing.result_slots = {0};
  layout.aten_calls = {failing};
  return layout;
}

at::Tensor take_output(void* output) {
  return at::Tensor(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim(
      static_cast<at::TensorImpl*>(output)));
}

TEST(MemoryExterns, AllocateGivesTheTypeOfTheSlot) {
  OneFrame frame(layout());
  for (const int64_t slot : {0, 1, 3, 4}) ASSERT_EQ(hostjit_allocate(frame.get(), slot), 0);
  EXPECT_EQ(frame.slot(0).sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(frame.slot(0).strides(), at::IntArrayRef({1, 2}));
  EXPECT_EQ(frame.slot(0).scalar_type(), at::kFloat);
  EXPECT_EQ(frame.get()->slot_data[0], frame.slot(0).data_ptr());
  EXPECT_EQ(frame.slot(3).scalar_type(), at::kBFloat16);
  EXPECT_EQ(frame.slot(3).numel(), 0);
  EXPECT_EQ(frame.slot(4).dim(), 0);
  hostjit_release(frame.get(), 0);
  EXPECT_FALSE(frame.slot(0).defined());
  EXPECT_EQ(frame.get()->slot_data[0], nullptr);
}

TEST(MemoryExterns, ViewOfAUsersTensorIsAViewForAutograd) {
  OneFrame frame(layout());
  at::Tensor input = at::arange(6, at::kFloat).view({2, 3}).clone();
  ASSERT_EQ(hostjit_view(frame.get(), &input, 3, 1), 0);
  EXPECT_TRUE(at::equal(frame.slot(1), input[1]));
  EXPECT_TRUE(frame.slot(1).is_view());
  EXPECT_TRUE(frame.slot(1)._base().is_same(input));
  const int64_t version = input._version();
  frame.slot(1).fill_(1);
  EXPECT_EQ(input._version(), version + 1);
  EXPECT_EQ(frame.get()->slot_data[1], input[1].data_ptr());
}

TEST(MemoryExterns, ViewOfAnIntermediateSharesMemoryAndVersion) {
  OneFrame frame(layout());
  ASSERT_EQ(hostjit_allocate(frame.get(), 0), 0);
  ASSERT_EQ(hostjit_view(frame.get(), &frame.slot(0), 2, 1), 0);
  frame.slot(1).fill_(4);
  EXPECT_EQ(frame.slot(0)._version(), 1);
  EXPECT_EQ(frame.slot(1).storage_offset(), 2);
  EXPECT_EQ(static_cast<float*>(frame.get()->slot_data[0]) + 2, frame.get()->slot_data[1]);
}

TEST(MemoryExterns, ViewOfAnotherDtypeFails) {
  OneFrame frame(layout());
  at::Tensor input = at::zeros({3}, at::kInt);
  EXPECT_EQ(hostjit_view(frame.get(), &input, 0, 1), 1);
  EXPECT_NE(recorded_error(frame.get()).find("view of Int as f32"), std::string::npos);
}

TEST(MemoryExterns, ReturnsHandOverOneReference) {
  OneFrame frame(layout());
  ASSERT_EQ(hostjit_allocate(frame.get(), 1), 0);
  frame.slot(1).fill_(2);
  void* outputs[2] = {};
  hostjit_return_slot(frame.get(), 1, &outputs[0]);
  EXPECT_FALSE(frame.slot(1).defined());
  at::Tensor input = at::ones({2});
  hostjit_return_tensor(frame.get(), &input, &outputs[1]);
  EXPECT_EQ(input.use_count(), 2u);
  const at::Tensor made = take_output(outputs[0]);
  EXPECT_EQ(made.use_count(), 1u);
  EXPECT_EQ(made.sum().item<float>(), 6);
  EXPECT_TRUE(take_output(outputs[1]).is_same(input));
}

TEST(MemoryExterns, CopyConvertsAndBroadcasts) {
  OneFrame frame(layout());
  at::Tensor source = at::arange(3, at::kInt);
  ASSERT_EQ(hostjit_copy(frame.get(), &source, &frame.slot(2)), 0);
  EXPECT_TRUE(at::equal(frame.slot(2), at::arange(3, at::kDouble).expand({2, 3})));
  at::Tensor wrong = at::zeros({4});
  EXPECT_EQ(hostjit_copy(frame.get(), &wrong, &frame.slot(2)), 1);
  EXPECT_NE(recorded_error(frame.get()).find("size of tensor"), std::string::npos);
}

TEST(MemoryExterns, AnErrorInTheMiddleLeaksNothing) {
  const CountingAllocator& memory = CountingAllocator::install();
  at::Tensor lhs = at::ones({2, 3});
  at::Tensor rhs = at::ones({2, 3});
  ProgramState state(layout(), nullptr, nullptr);
  Frame* frame = state.take();
  const int64_t before = memory.live_blocks();
  const int64_t allocations = memory.allocations();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(hostjit_allocate(frame, 1), 0);
    ASSERT_EQ(hostjit_view(frame, &lhs, 0, 4), 0);
    EXPECT_EQ(memory.live_blocks(), before + 1);
    hostjit_range_push(frame, "open");
    void* operands[] = {&lhs, &rhs};
    ASSERT_EQ(hostjit_aten_call(frame, 0, operands), 1);
    hostjit_cleanup(frame);
    EXPECT_EQ(recorded_error(frame), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
    EXPECT_EQ(memory.live_blocks(), before);
    EXPECT_TRUE(FrameStorage::of(frame).ranges.empty());
  }
  EXPECT_GT(memory.allocations(), allocations);
  EXPECT_EQ(lhs.use_count(), 1u);
  state.give_back(frame);
}

std::vector<std::string>& seen_ranges() {
  static std::vector<std::string> names;
  return names;
}

TEST(ProfilingExterns, RangesReachTheCallbacks) {
  OneFrame frame(layout());
  seen_ranges().clear();
  EXPECT_FALSE(hostjit_profiling_enabled(frame.get()));
  hostjit_range_pop(frame.get());  // began while profiling was off: nothing to close
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& range) -> std::unique_ptr<at::ObserverContext> {
            seen_ranges().push_back(std::string("+") + range.name());
            return nullptr;
          },
          [](const at::RecordFunction& range, at::ObserverContext*) {
            seen_ranges().push_back(std::string("-") + range.name());
          })
          .scopes({at::RecordScope::USER_SCOPE}));
  EXPECT_TRUE(hostjit_profiling_enabled(frame.get()));
  hostjit_range_push(frame.get(), "outer");
  hostjit_range_push(frame.get(), "inner");
  hostjit_range_pop(frame.get());
  hostjit_range_push(frame.get(), "left open");
  hostjit_cleanup(frame.get());
  at::removeCallback(handle);
  EXPECT_EQ(seen_ranges(), (std::vector<std::string>{"+outer", "+inner", "-inner", "+left open",
                                                     "-left open", "-outer"}));
  EXPECT_FALSE(hostjit_profiling_enabled(frame.get()));
}

}  // namespace
}  // namespace hostjit
