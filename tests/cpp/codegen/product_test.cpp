// SPDX-License-Identifier: Apache-2.0
// Generated products against ATen on random shapes and strides, and on those that each form of
// generated code and each of its tails is for.
#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/builder.h"
#include "runtime/torch_types.h"
#include "tools/runtime_comparison.h"

namespace hostjit {
namespace {

enum class Layout : uint8_t { kRows, kColumns, kWideRows, kWideColumns };

// Wide ones have more in memory between two rows or columns than they hold.
TensorType matrix_type(DType dtype, int64_t rows, int64_t columns, Layout layout) {
  const int64_t gap = layout == Layout::kWideRows || layout == Layout::kWideColumns ? 3 : 0;
  const bool is_by_rows = layout == Layout::kRows || layout == Layout::kWideRows;
  const int64_t leading = std::max<int64_t>(is_by_rows ? columns : rows, 1) + gap;
  const std::vector<Dim> strides =
      is_by_rows ? std::vector<Dim>{Dim(leading), Dim(1)} : std::vector<Dim>{Dim(1), Dim(leading)};
  return TensorType::make(dtype, {rows, columns}, strides);
}

struct Case {
  int64_t m;
  int64_t k;
  int64_t n;
  DType dtype = DType::kF32;
  Layout lhs = Layout::kRows;
  Layout rhs = Layout::kRows;
  Layout out = Layout::kRows;
  bool has_addend = false;
  bool addend_is_column = false;
  double alpha = 1.0;
  double beta = 1.0;
};

std::string compare(const Case& test, int seed) {
  const auto& [m, k, n, dtype, lhs_layout, rhs_layout, out_layout, has_addend, addend_is_column,
               alpha, beta] = test;
  Program program("product");
  Value* lhs = program.add_input(matrix_type(dtype, m, k, lhs_layout), "lhs");
  Value* rhs = program.add_input(matrix_type(dtype, k, n, rhs_layout), "rhs");
  Value* bias = program.add_input(
      addend_is_column ? TensorType::make(dtype, {m, Dim(1)}) : TensorType::make(dtype, {n}),
      "bias");
  Builder builder(program);
  Value* out = builder.allocate(matrix_type(dtype, m, n, out_layout));
  if (has_addend) {
    builder.create(
        Addmm{.bias = bias, .lhs = lhs, .rhs = rhs, .beta = beta, .alpha = alpha, .out = out});
  } else {
    builder.create(Matmul{.lhs = lhs, .rhs = rhs, .out = out});
  }
  program.set_outputs({out});
  RunnableProgram runnable(program);
  return compare_runtimes(runnable, seed, /*num_calls=*/1);
}

TEST(Product, AgreesOnRandomShapesAndStrides) {
  constexpr DType kDTypes[] = {DType::kF32,  DType::kF32,  DType::kF32, DType::kF64,
                               DType::kBF16, DType::kBF16, DType::kF16};
  std::mt19937 random(7);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const auto pick_layout = [&] { return static_cast<Layout>(pick(0, 3)); };
  for (int round = 0; round < 100; ++round) {
    const Case test{.m = pick(0, 4) == 0 ? 1 : pick(1, 20),
                    .k = pick(1, 70),
                    .n = pick(0, 4) == 0 ? 1 : pick(1, 70),
                    .dtype = kDTypes[pick(0, 6)],
                    .lhs = pick_layout(),
                    .rhs = pick_layout(),
                    .out = pick(0, 2) == 0 ? pick_layout() : Layout::kRows,
                    .has_addend = pick(0, 1) == 0,
                    .addend_is_column = pick(0, 1) == 0,
                    .alpha = pick(0, 1) ? 1.0 : -2.0,
                    .beta = pick(0, 1) ? 1.0 : 0.5};
    ASSERT_EQ(compare(test, round), "")
        << test.m << "x" << test.k << "x" << test.n << ", round " << round;
  }
}

TEST(Product, AgreesWherePanelsArePacked) {
  constexpr Layout kColumns = Layout::kColumns;
  const Case cases[] = {
      // Rows of rhs far apart: several panels at a time, and what is left over of each dim.
      {.m = 66, .k = 70, .n = 600},
      {.m = 67, .k = 65, .n = 570, .dtype = DType::kF64, .lhs = kColumns},
      {.m = 257, .k = 20, .n = 1030, .has_addend = true},
      // Deeper than one panel: sums wait in out, and the addend comes last.
      {.m = 259, .k = 523, .n = 99},
      {.m = 259, .k = 523, .n = 99, .has_addend = true, .alpha = -2.0, .beta = 0.5},
      {.m = 130, .k = 1031, .n = 50, .rhs = kColumns, .has_addend = true},
      {.m = 130,
       .k = 517,
       .n = 49,
       .dtype = DType::kF64,
       .rhs = kColumns,
       .has_addend = true,
       .addend_is_column = true,
       .alpha = 3.0},
      {.m = 129, .k = 1024, .n = 48, .lhs = kColumns, .rhs = kColumns},
      // Columns of rhs that are shorter than a vector, as long, and a little longer.
      {.m = 1, .k = 3, .n = 37, .rhs = kColumns},
      {.m = 20, .k = 7, .n = 50, .rhs = kColumns},
      {.m = 5, .k = 16, .n = 40, .rhs = kColumns, .out = Layout::kWideRows},
      {.m = 17, .k = 33, .n = 71, .rhs = Layout::kWideColumns},
      // Columns that dots can't walk along with lhs.
      {.m = 3, .k = 50, .n = 20, .lhs = kColumns, .rhs = kColumns},
      {.m = 1, .k = 40, .n = 33, .lhs = Layout::kWideColumns, .rhs = kColumns},
  };
  int seed = 0;
  for (const Case& test : cases) {
    EXPECT_EQ(compare(test, seed++), "") << test.m << "x" << test.k << "x" << test.n;
  }
}

// Sums of several depths wait on the stack, of as many rows as there is place for.
TEST(Product, AgreesOnHalfFloatsWherePanelsArePacked) {
  constexpr Layout kColumns = Layout::kColumns;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Case cases[] = {
        // An even k, of which bf16 makes pairs, and an odd one.
        {.m = 66, .k = 1030, .n = 130, .dtype = dtype},
        {.m = 67, .k = 1031, .n = 130, .dtype = dtype, .has_addend = true, .alpha = -2.0},
        {.m = 131, .k = 1100, .n = 99, .dtype = dtype, .rhs = kColumns, .has_addend = true},
        {.m = 257, .k = 600, .n = 230, .dtype = dtype, .has_addend = true, .beta = 0.5},
        {.m = 40, .k = 1030, .n = 50, .dtype = dtype, .lhs = kColumns, .rhs = kColumns},
        {.m = 129, .k = 1024, .n = 48, .dtype = dtype, .rhs = Layout::kWideColumns},
        {.m = 33, .k = 300, .n = 520, .dtype = dtype, .addend_is_column = true},
        // One row, of which a few columns or a part of a row of rhs are taken at a time.
        {.m = 1, .k = 2050, .n = 37, .dtype = dtype, .rhs = kColumns, .has_addend = true},
        {.m = 1, .k = 2050, .n = 37, .dtype = dtype, .has_addend = true},
        // One that ATen does.
        {.m = 520, .k = 520, .n = 520, .dtype = dtype},
    };
    int seed = 0;
    for (const Case& test : cases) {
      EXPECT_EQ(compare(test, seed++), "")
          << dtype << " " << test.m << "x" << test.k << "x" << test.n;
    }
  }
}

// Inputs may share memory: no generated code reads what it has written.
TEST(Product, AgreesWhereTheResultMayOverlapAnOperand) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Program program("product");
    Value* lhs = program.add_input(TensorType::make(dtype, {5, 6}), "lhs");
    Value* rhs = program.add_input(TensorType::make(dtype, {6, 7}), "rhs");
    Value* out = program.add_input(TensorType::make(dtype, {5, 7}), "out");
    Builder builder(program);
    builder.create(Matmul{.lhs = lhs, .rhs = rhs, .out = out});
    program.set_outputs({out});
    RunnableProgram runnable(program);
    EXPECT_EQ(compare_runtimes(runnable, /*seed=*/1), "") << dtype;
  }
}

TEST(Product, AgreesOnOneRowAndOneColumn) {
  for (const Layout layout : {Layout::kRows, Layout::kColumns}) {
    for (const int64_t size : {1, 8, 24, 64}) {
      for (const int64_t k : {5, 64, 83, 300}) {
        const Case row{.m = 1, .k = k, .n = size, .rhs = layout, .has_addend = true};
        EXPECT_EQ(compare(row, 1), "") << "1x" << k << "x" << size;
        const Case column{.m = size,
                          .k = k,
                          .n = 1,
                          .lhs = layout,
                          .has_addend = true,
                          .addend_is_column = true,
                          .alpha = 0.5};
        EXPECT_EQ(compare(column, 2), "") << size << "x" << k << "x1";
      }
    }
  }
}

// Blocks of columns, of rows and of matrices, with and without a smaller one in the end.
TEST(Product, AgreesWhenThreadsShareIt) {
  constexpr Layout kColumns = Layout::kColumns;
  const Case cases[] = {
      {.m = 128, .k = 130, .n = 1024, .has_addend = true},
      {.m = 67, .k = 260, .n = 601, .has_addend = true, .beta = 0.5},
      {.m = 67, .k = 260, .n = 601, .has_addend = true, .addend_is_column = true},
      {.m = 803, .k = 120, .n = 37, .has_addend = true, .addend_is_column = true},
      {.m = 1100, .k = 300, .n = 20, .rhs = kColumns, .has_addend = true},
      {.m = 130, .k = 517, .n = 149, .dtype = DType::kF64, .rhs = kColumns, .has_addend = true},
      {.m = 130, .k = 301, .n = 200, .lhs = kColumns, .rhs = kColumns, .out = kColumns},
      {.m = 8, .k = 512, .n = 1030, .rhs = kColumns, .has_addend = true},
      {.m = 1, .k = 700, .n = 1037, .rhs = kColumns, .has_addend = true},
      {.m = 1, .k = 700, .n = 1037, .has_addend = true, .alpha = 2.0},
      {.m = 1037, .k = 700, .n = 1},
      {.m = 67, .k = 600, .n = 602, .dtype = DType::kBF16, .rhs = kColumns, .has_addend = true},
      {.m = 803, .k = 301, .n = 37, .dtype = DType::kBF16, .has_addend = true},
      {.m = 1, .k = 1400, .n = 1037, .dtype = DType::kF16, .rhs = kColumns, .has_addend = true},
  };
  const int threads = at::get_num_threads();
  int seed = 0;
  for (const Case& test : cases) {
    ++seed;
    for (const int count : {1, 2, 3, 5}) {
      at::set_num_threads(count);
      EXPECT_EQ(compare(test, seed), "")
          << test.m << "x" << test.k << "x" << test.n << " in " << count << " threads";
    }
  }
  at::set_num_threads(threads);
}

// Heads of attention lie side by side: [heads, sequence, width] with a row of all heads at a time.
TEST(Product, AgreesOnBatchesOfEverySizeAndNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const int64_t length : {9, 130, 400}) {
    const int64_t heads = 5;
    const int64_t width = 64;
    Program program("heads");
    const std::vector<Dim> by_head = {Dim(width), Dim(heads * width), Dim(1)};
    const std::vector<Dim> transposed = {Dim(width), Dim(1), Dim(heads * width)};
    Value* query =
        program.add_input(TensorType::make(DType::kF32, {heads, length, width}, by_head), "query");
    Value* key =
        program.add_input(TensorType::make(DType::kF32, {heads, width, length}, transposed), "key");
    Value* value =
        program.add_input(TensorType::make(DType::kF32, {heads, length, width}, by_head), "value");
    Builder builder(program);
    Value* scores = builder.allocate(TensorType::make(DType::kF32, {heads, length, length}));
    builder.create(Bmm{.lhs = query, .rhs = key, .out = scores});
    Value* out = builder.allocate(TensorType::make(DType::kF32, {heads, length, width}));
    builder.create(Bmm{.lhs = scores, .rhs = value, .out = out});
    program.set_outputs({scores, out});
    RunnableProgram runnable(program);
    for (const int count : {1, 2, 4}) {
      at::set_num_threads(count);
      EXPECT_EQ(compare_runtimes(runnable, /*seed=*/count, /*num_calls=*/1), "") << length;
    }
    at::set_num_threads(threads);
  }
}

void expect_special_values_stay(DType dtype, int64_t k, bool is_transposed) {
  Program program("product");
  Value* lhs = program.add_input(TensorType::make(dtype, {30, k}), "lhs");
  Value* rhs = program.add_input(
      matrix_type(dtype, k, 7, is_transposed ? Layout::kColumns : Layout::kRows), "rhs");
  Builder builder(program);
  Value* out = builder.allocate(TensorType::make(dtype, {30, 7}));
  builder.create(Matmul{.lhs = lhs, .rhs = rhs, .out = out});
  program.set_outputs({out});
  RunnableProgram runnable(program);
  const at::TensorOptions options = to_torch(dtype);
  at::Tensor a = at::ones({30, k}, options);
  at::Tensor b = is_transposed ? at::ones({7, k}, options).t() : at::ones({k, 7}, options);
  a[1][2] = std::numeric_limits<float>::quiet_NaN();
  a[2][0] = 0.0;
  b[4][6] = std::numeric_limits<float>::infinity();
  b[0][5] = std::numeric_limits<float>::infinity();
  const at::Tensor found = runnable.run_jit({a, b}).outputs.at(0);
  EXPECT_TRUE(at::allclose(found, at::mm(a, b), 0, 0, /*equal_nan=*/true)) << found;
}

TEST(Product, KeepsNaNAndInfinityOfOperands) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t k : {5, 6}) {
      for (const bool is_transposed : {false, true}) {
        expect_special_values_stay(dtype, k, is_transposed);
      }
    }
  }
}

}  // namespace
}  // namespace hostjit
