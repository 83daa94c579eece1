// SPDX-License-Identifier: Apache-2.0
// Generated products against ATen on random shapes and strides.
#include <gtest/gtest.h>

#include <random>

#include "ir/builder.h"
#include "tools/runtime_comparison.h"

namespace hostjit {
namespace {

TensorType matrix_type(DType dtype, int64_t rows, int64_t columns, bool is_transposed) {
  if (!is_transposed) return TensorType::make(dtype, {rows, columns});
  return TensorType::make(dtype, {rows, columns},
                          std::vector<Dim>{Dim(1), Dim(std::max<int64_t>(rows, 1))});
}

TEST(Product, AgreesOnRandomShapesAndStrides) {
  std::mt19937 random(7);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 60; ++round) {
    const DType dtype = pick(0, 3) == 0 ? DType::kF64 : DType::kF32;
    const int64_t m = pick(0, 4) == 0 ? 1 : pick(1, 20);
    const int64_t n = pick(0, 4) == 0 ? 1 : pick(1, 70);
    const int64_t k = pick(1, 70);
    Program program("product");
    Value* lhs = program.add_input(matrix_type(dtype, m, k, pick(0, 2) == 0), "lhs");
    Value* rhs = program.add_input(matrix_type(dtype, k, n, pick(0, 1) == 0), "rhs");
    Value* bias = program.add_input(
        pick(0, 1) ? TensorType::make(dtype, {n}) : TensorType::make(dtype, {m, Dim(1)}), "bias");
    Builder builder(program);
    Value* out = builder.allocate(matrix_type(dtype, m, n, pick(0, 5) == 0));
    if (pick(0, 1)) {
      builder.create(Matmul{.lhs = lhs, .rhs = rhs, .out = out});
    } else {
      builder.create(Addmm{.bias = bias,
                           .lhs = lhs,
                           .rhs = rhs,
                           .beta = pick(0, 1) ? 1.0 : 0.5,
                           .alpha = pick(0, 1) ? 1.0 : -2.0,
                           .out = out});
    }
    program.set_outputs({out});
    RunnableProgram runnable(program);
    ASSERT_EQ(compare_runtimes(runnable, /*seed=*/round, /*num_calls=*/1), "")
        << m << "x" << k << "x" << n << "\n"
        << runnable.module().unoptimized_llvm_ir();
  }
}

TEST(Product, KeepsNaNAndInfinityOfOperands) {
  Program program("product");
  Value* lhs = program.add_input(TensorType::make(DType::kF32, {3, 5}), "lhs");
  Value* rhs = program.add_input(TensorType::make(DType::kF32, {5, 7}), "rhs");
  Builder builder(program);
  Value* out = builder.allocate(TensorType::make(DType::kF32, {3, 7}));
  builder.create(Matmul{.lhs = lhs, .rhs = rhs, .out = out});
  program.set_outputs({out});
  RunnableProgram runnable(program);
  at::Tensor a = at::ones({3, 5});
  at::Tensor b = at::ones({5, 7});
  a[1][2] = std::numeric_limits<float>::quiet_NaN();
  b[4][6] = std::numeric_limits<float>::infinity();
  const at::Tensor found = runnable.run_jit({a, b}).outputs.at(0);
  EXPECT_TRUE(at::allclose(found, at::mm(a, b), 0, 0, /*equal_nan=*/true)) << found;
}

}  // namespace
}  // namespace hostjit
