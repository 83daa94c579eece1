// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "frame_fixture.h"
#include "runtime/blas.h"

namespace hostjit {
namespace {

const float kNaN = std::numeric_limits<float>::quiet_NaN();

void expect_close(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_TRUE(at::allclose(found, expected, 1e-5, 1e-5)) << found << expected;
}

enum class Way { kBlas, kAten, kExtern };

template <class T>
void run(Way way, const Gemm<T>& g) {
  if (way == Way::kBlas) {
    if (!run_in_blas(g)) run_in_aten(g);  // a PyTorch without exported BLAS
  } else if (way == Way::kAten) {
    run_in_aten(g);
  } else if constexpr (std::is_same_v<T, float>) {
    hostjit_gemm_f32(g.transpose_a, g.transpose_b, g.m, g.n, g.k, g.alpha, g.a, g.lda, g.b, g.ldb,
                     g.beta, g.c, g.ldc);
  } else {
    hostjit_gemm_f64(g.transpose_a, g.transpose_b, g.m, g.n, g.k, g.alpha, g.a, g.lda, g.b, g.ldb,
                     g.beta, g.c, g.ldc);
  }
}

template <class T>
void run(Way way, const Gemv<T>& g) {
  if (way == Way::kBlas) {
    if (!run_in_blas(g)) run_in_aten(g);
  } else if (way == Way::kAten) {
    run_in_aten(g);
  } else if constexpr (std::is_same_v<T, float>) {
    hostjit_gemv_f32(g.transpose, g.m, g.n, g.alpha, g.a, g.lda, g.x, g.beta, g.y);
  } else {
    hostjit_gemv_f64(g.transpose, g.m, g.n, g.alpha, g.a, g.lda, g.x, g.beta, g.y);
  }
}

// A column-major matrix with `padding` extra rows that nobody may touch.
template <class T>
at::Tensor column_major(int64_t rows, int64_t columns, int64_t padding) {
  const auto type = c10::CppTypeToScalarType<T>::value;
  return at::randn({columns, rows + padding}, type).t().narrow(0, 0, rows);
}

template <class T>
void check_gemm(Way way, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                T alpha, T beta) {
  const at::Tensor a = transpose_a ? column_major<T>(k, m, 1) : column_major<T>(m, k, 1);
  const at::Tensor b = transpose_b ? column_major<T>(n, k, 2) : column_major<T>(k, n, 2);
  const at::Tensor c = column_major<T>(m, n, 3);
  if (beta == 0) c.fill_(kNaN);
  at::Tensor expected = at::matmul(transpose_a ? a.t() : a, transpose_b ? b.t() : b) * alpha;
  if (beta != 0) expected = expected + c * beta;
  run(way, Gemm<T>{transpose_a, transpose_b, m, n, k, alpha, a.const_data_ptr<T>(), a.stride(1),
                   b.const_data_ptr<T>(), b.stride(1), beta, c.mutable_data_ptr<T>(), c.stride(1)});
  expect_close(c, expected);
}

TEST(Gemm, AllWaysAgreeWithMatmul) {
  at::manual_seed(0);
  for (const Way way : {Way::kBlas, Way::kAten, Way::kExtern}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        check_gemm<float>(way, transpose_a, transpose_b, 3, 5, 4, 1, 0);
        check_gemm<float>(way, transpose_a, transpose_b, 1, 1, 4, 2, 0.5);
        check_gemm<double>(way, transpose_a, transpose_b, 7, 1, 2, 1, 1);
        check_gemm<double>(way, transpose_a, transpose_b, 2, 6, 0, 1, 0);
        check_gemm<float>(way, transpose_a, transpose_b, 2, 6, 0, 1, 0.5);
        check_gemm<float>(way, transpose_a, transpose_b, 0, 6, 3, 1, 0);
      }
    }
  }
}

TEST(Gemm, AnyLeadingDimensionOfASingleColumn) {
  const at::Tensor a = at::randn({4});
  const at::Tensor b = at::randn({1});
  at::Tensor c = at::empty({4});
  hostjit_gemm_f32(false, false, 4, 1, 1, 1, a.const_data_ptr<float>(), /*lda=*/1,
                   b.const_data_ptr<float>(), /*ldb=*/0, 0, c.mutable_data_ptr<float>(), 1);
  expect_close(c, a * b);
}

TEST(Gemm, ExpandedOperand) {
  const at::Tensor a = at::randn({3});  // the column of every column: leading dimension 0
  const at::Tensor b = at::randn({2, 4}).t();
  at::Tensor c = at::empty({2, 3}).t();
  hostjit_gemm_f32(false, false, 3, 2, 4, 1, a.const_data_ptr<float>(), /*lda=*/0,
                   b.const_data_ptr<float>(), 4, 0, c.mutable_data_ptr<float>(), 3);
  expect_close(c, at::matmul(a.unsqueeze(1).expand({3, 4}), b));
}

template <class T>
void check_gemv(Way way, bool transpose, int64_t m, int64_t n, T alpha, T beta) {
  const auto type = c10::CppTypeToScalarType<T>::value;
  const at::Tensor a = column_major<T>(m, n, 2);
  const at::Tensor op_a = transpose ? a.t() : a;
  const at::Tensor x = at::randn({op_a.size(1)}, type);
  at::Tensor y = at::randn({op_a.size(0)}, type);
  if (beta == 0) y.fill_(kNaN);
  at::Tensor expected = at::matmul(op_a, x) * alpha;
  if (beta != 0) expected = expected + y * beta;
  run(way, Gemv<T>{transpose, m, n, alpha, a.const_data_ptr<T>(), a.stride(1),
                   x.const_data_ptr<T>(), beta, y.mutable_data_ptr<T>()});
  expect_close(y, expected);
}

TEST(Gemv, AllWaysAgreeWithMatmul) {
  at::manual_seed(0);
  for (const Way way : {Way::kBlas, Way::kAten, Way::kExtern}) {
    for (const bool transpose : {false, true}) {
      check_gemv<float>(way, transpose, 3, 5, 1, 0);
      check_gemv<double>(way, transpose, 4, 2, -2, 0.5);
      check_gemv<float>(way, transpose, 1, 1, 1, 1);
      check_gemv<float>(way, transpose, 0, 3, 1, 0);
      check_gemv<double>(way, transpose, 3, 0, 1, 2);
    }
  }
}

TEST(Blas, TakesWhatItsIntegersHold) {
  const float one = 1;
  float out = 0;
  if (!run_in_blas(Gemm<float>{false, false, 1, 1, 1, 1, &one, 1, &one, 1, 0, &out, 1})) {
    GTEST_SKIP() << "this PyTorch exports no sgemm_";
  }
  EXPECT_EQ(out, 1);
  const int64_t too_large = int64_t{1} << 31;
  EXPECT_FALSE(run_in_blas(
      Gemm<float>{false, false, too_large, 1, 1, 1, &one, too_large, &one, 1, 0, &out, 1}));
}

class MathExterns : public ::testing::Test {
 protected:
  OneFrame frame_{FrameLayout{}};
};

TEST_F(MathExterns, MatmulOfEachLayoutAndDtype) {
  at::manual_seed(0);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kComplexFloat, at::kLong}) {
    at::Tensor lhs = at::randn({3, 4}).mul(8).to(type);
    at::Tensor rhs = at::randn({5, 4}).mul(8).to(type).t();
    at::Tensor out = at::empty({5, 3}, type).t();
    ASSERT_EQ(hostjit_matmul(frame_.get(), &lhs, &rhs, &out), 0);
    // Rounding depends on the layout of the output.
    const double tolerance = type == at::kBFloat16 ? 1e-2 : 1e-5;
    EXPECT_TRUE(at::allclose(out, at::matmul(lhs, rhs), tolerance, tolerance)) << type;
    EXPECT_EQ(out._version(), 1);
  }
}

TEST_F(MathExterns, BmmAndSums) {
  at::Tensor lhs = at::randn({2, 3, 4});
  at::Tensor rhs = at::randn({2, 4, 5});
  at::Tensor out = at::empty({2, 3, 5});
  ASSERT_EQ(hostjit_bmm(frame_.get(), &lhs, &rhs, &out), 0);
  expect_close(out, at::bmm(lhs, rhs));

  at::Tensor bias = at::randn({5});
  at::Tensor a = lhs[0];
  at::Tensor b = rhs[0];
  at::Tensor sum = at::empty({3, 5});
  ASSERT_EQ(hostjit_addmm(frame_.get(), &bias, &a, &b, 0.5, 2, &sum), 0);
  expect_close(sum, at::addmm(bias, a, b, 0.5, 2));
  bias.fill_(kNaN);
  ASSERT_EQ(hostjit_addmm(frame_.get(), &bias, &a, &b, 0, 1, &sum), 0);
  expect_close(sum, at::matmul(a, b));

  at::Tensor sums = at::empty({2, 3, 5});
  ASSERT_EQ(hostjit_baddbmm(frame_.get(), &sum, &lhs, &rhs, 0.5, 2, &sums), 0);
  expect_close(sums, at::baddbmm(sum, lhs, rhs, 0.5, 2));
  ASSERT_EQ(hostjit_baddbmm(frame_.get(), &bias, &lhs, &rhs, 0, 1, &sums), 0);
  expect_close(sums, at::bmm(lhs, rhs));

  at::Tensor integers = at::ones({2, 2}, at::kLong);
  at::Tensor result = at::empty({2, 2}, at::kLong);
  ASSERT_EQ(hostjit_addmm(frame_.get(), &integers, &integers, &integers, 1, 3, &result), 0);
  EXPECT_TRUE(at::equal(result, at::full({2, 2}, 7)));
  at::Tensor batch = integers.unsqueeze(0);
  at::Tensor results = at::empty({1, 2, 2}, at::kLong);
  ASSERT_EQ(hostjit_baddbmm(frame_.get(), &integers, &batch, &batch, 1, 3, &results), 0);
  EXPECT_TRUE(at::equal(results, at::full({1, 2, 2}, 7)));
}

TEST_F(MathExterns, LinearOfEachRank) {
  at::Tensor weight = at::randn({6, 4});
  at::Tensor bias = at::randn({12}).slice(0, 0, 12, 2);
  for (at::Tensor input :
       {at::randn({4}), at::randn({3, 4}), at::randn({2, 3, 4}), at::randn({0, 4}),
        at::randn({3, 2, 4}).transpose(0, 1), at::randn({4}).expand({2, 3, 4})}) {
    for (at::Tensor* used_bias : {&bias, static_cast<at::Tensor*>(nullptr)}) {
      const at::Tensor expected =
          at::linear(input, weight, used_bias ? std::optional(*used_bias) : std::nullopt);
      at::Tensor out = at::full(expected.sizes(), kNaN);
      ASSERT_EQ(hostjit_linear(frame_.get(), &input, &weight, used_bias, &out), 0);
      expect_close(out, expected);
      if (out.dim() < 3) continue;
      at::Tensor permuted = at::full({3, 2, 6}, kNaN).transpose(0, 1);
      ASSERT_EQ(hostjit_linear(frame_.get(), &input, &weight, used_bias, &permuted), 0);
      expect_close(permuted, expected);
    }
  }
}

TEST_F(MathExterns, LinearOfEachDtypeHasTheBitsOfEager) {
  at::manual_seed(0);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kComplexFloat}) {
    at::Tensor input = at::randn({2, 3, 40}).to(type);
    at::Tensor weight = at::randn({24, 40}).to(type);
    at::Tensor bias = at::randn({24}).to(type);
    at::Tensor out = at::empty({2, 3, 24}, type);
    ASSERT_EQ(hostjit_linear(frame_.get(), &input, &weight, &bias, &out), 0)
        << recorded_error(frame_.get());
    EXPECT_TRUE(at::equal(out, at::linear(input, weight, bias))) << type;
  }
}

TEST_F(MathExterns, LinearWithoutInnerSize) {
  at::Tensor input = at::randn({2, 0});
  at::Tensor weight = at::randn({3, 0});
  at::Tensor bias = at::randn({3});
  at::Tensor out = at::full({2, 3}, kNaN);
  ASSERT_EQ(hostjit_linear(frame_.get(), &input, &weight, &bias, &out), 0);
  expect_close(out, bias.expand({2, 3}));
  ASSERT_EQ(hostjit_linear(frame_.get(), &input, &weight, nullptr, &out), 0);
  expect_close(out, at::zeros({2, 3}));
}

TEST_F(MathExterns, ErrorsAreThoseOfEager) {
  at::Tensor a = at::randn({3, 4});
  at::Tensor out = at::empty({3, 3});
  EXPECT_EQ(hostjit_matmul(frame_.get(), &a, &a, &out), 1);
  EXPECT_EQ(recorded_error(frame_.get()),
            "mat1 and mat2 shapes cannot be multiplied (3x4 and 3x4)");
  EXPECT_EQ(hostjit_bmm(frame_.get(), &a, &a, &out), 1);
  EXPECT_EQ(recorded_error(frame_.get()), "batch1 must be a 3D tensor");
}

}  // namespace
}  // namespace hostjit
