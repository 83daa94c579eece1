// SPDX-License-Identifier: Apache-2.0
#include "codegen/row_maker.h"

#include <gtest/gtest.h>

#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/pipeline.h"

namespace hostjit {
namespace {

constexpr const char* kText = R"(
program @p(%x: tensor<f32, [n, 8], cpu>) {
  %n = size(source=%x, dim=0) : index
  %a = allocate() : tensor<f32, [n, 8], cpu>
  copy(source=%x, out=%a)
  %b = allocate() : tensor<f32, [8, n], cpu>
  %at = view(source=%a) : tensor<f32, [8, n], strides=[1, 8], cpu>
  copy(source=%at, out=%b)
  %second = view(source=%b, offset=n) : tensor<f32, [n], cpu>
  %y = aten_call(target="aten::neg", inputs=[%second], arguments=[$0]) : tensor<f32, [n], cpu>
  return %y
})";

Program planned(const char* text = kText) {
  Program program = parse_program(text);
  run_passes(program, default_pipeline());
  return program;
}

std::vector<int64_t> sizes(std::initializer_list<int64_t> values) { return values; }

const SlotSpec& arena_slot_of_rank(const RowContents& row, size_t rank) {
  for (const SlotSpec& slot : row.slots) {
    if (slot.kind == SlotKind::kArena && slot.type.sizes.size() == rank) return slot;
  }
  throw_error("no slot in the arena");
}

TEST(RowMaker, PutsTheNumbersIn) {
  const Program program = planned();
  RowMaker maker(program);
  const RowContents row = maker.make(sizes({10}));
  // n, then the two blocks: 320 bytes each, live together.
  ASSERT_EQ(row.table.size(), 3u);
  EXPECT_EQ(row.table[0], 10);
  EXPECT_EQ(row.arena_bytes, 640);
  EXPECT_EQ(row.table[1] + row.table[2], 320);
  // A header for the operator, on the second row of b.
  const SlotSpec& slot = arena_slot_of_rank(row, 1);
  EXPECT_EQ(slot.type.sizes, sizes({10}));
  EXPECT_EQ(slot.type.strides, sizes({1}));
  EXPECT_EQ(slot.offset % 64, 40);
}

TEST(RowMaker, TheProgramOfARowIsValid) {
  const Program program = planned();
  RowMaker maker(program);
  for (const int64_t n : {7, 2, 100, 2}) {
    maker.make(sizes({n}));
    const Program row = maker.clone_program(program);
    verify_program(row);
    EXPECT_FALSE(row.is_symbolic());
    EXPECT_TRUE(structurally_equal(parse_program(to_string(row)), row));
    EXPECT_EQ(row.inputs()[0]->tensor_type().sizes(), sizes({n, 8}));
  }
}

TEST(RowMaker, SlotsOfAllRowsHaveTheSameNumbers) {
  const Program program = planned();
  RowMaker maker(program);
  const RowContents some = maker.make(sizes({3}));
  for (const int64_t n : {2, 64, 1000}) {
    const RowContents row = maker.make(sizes({n}));
    ASSERT_EQ(row.slots.size(), some.slots.size());
    for (size_t i = 0; i < row.slots.size(); ++i) {
      EXPECT_EQ(row.slots[i].kind, some.slots[i].kind);
      EXPECT_EQ(row.slots[i].type.sizes.size(), some.slots[i].type.sizes.size());
    }
  }
}

void expect_error(const Program& program, std::initializer_list<int64_t> values,
                  const std::string& message) {
  RowMaker maker(program);
  try {
    maker.make(sizes(values));
    ADD_FAILURE() << "no error, expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), message);
  }
}

TEST(RowMaker, RefusesAViewBeyondItsMemory) {
  const Program program = planned(R"(
program @p(%x: tensor<f32, [n, 4], cpu>) {
  %n = size(source=%x, dim=0) : index
  %v = view(source=%x, offset=n) : tensor<f32, [4], cpu>
  %y = allocate() : tensor<f32, [4], cpu>
  copy(source=%v, out=%y)
  return %y
})");
  RowMaker(program).make(sizes({2}));
  expect_error(program, {1},
               "view: 'result' covers 4 elements of memory from offset 1, expected to stay within "
               "the 4 of 'source'");
}

TEST(RowMaker, RefusesShapesThatDoNotFit) {
  const Program program = planned(R"(
program @p(%x: tensor<f32, [n, k], cpu>, %y: tensor<f32, [m, 4], cpu>) {
  %n = size(source=%x, dim=0) : index
  %k = size(source=%x, dim=1) : index
  %m = size(source=%y, dim=0) : index
  %z = allocate() : tensor<f32, [n, 4], cpu>
  matmul(lhs=%x, rhs=%y, out=%z)
  copy(source=%y, out=%z)
  return %z
})");
  RowMaker(program).make(sizes({3, 3, 3}));
  expect_error(program, {3, 2, 3}, "matmul: 'rhs' has sizes [3, 4], expected [2, 4]");
  expect_error(program, {3, 2, 2},
               "copy: 'source' has sizes [2, 4], expected sizes that broadcast to [3, 4]");
}

TEST(RowMaker, RefusesSizesThatAreNone) {
  const Program program = planned(R"(
program @p(%x: tensor<f32, [n], cpu>) {
  %n = size(source=%x, dim=0) : index
  %ten = index_constant(value=10) : index
  %less = index_binary(operation=sub, lhs=%n, rhs=%ten) : index
  %y = allocate() : tensor<f32, [less], cpu>
  fill(value=0.0, out=%y)
  return %y
})");
  RowMaker(program).make(sizes({10}));
  expect_error(program, {3}, "tensor type: size -7 is negative");
}

}  // namespace
}  // namespace hostjit
