// SPDX-License-Identifier: Apache-2.0
#include "ir/type.h"

#include <gtest/gtest.h>

#include "ir/parser.h"
#include "support/check.h"

namespace hostjit {
namespace {

TensorType tensor(const char* text) { return std::get<TensorType>(type_from_string(text)); }

TEST(Type, RoundTrips) {
  for (const char* text :
       {"tensor<f32, [], cpu>", "tensor<bf16, [4, 8], strides=[1, 4], cuda:3>",
        "tensor<u8, [0, 3], meta:0>", "tensor<f32, [n, 8], cpu>",
        "tensor<f32, [n, 8], strides=[m, 1], cpu>", "tensor<f32, [1, 4], strides=[1, 1], cpu>",
        "index", "f64", "bool", "stream", "event"}) {
    EXPECT_EQ(to_string(type_from_string(text)), text);
  }
  EXPECT_THROW(type_from_string("index index"), Error);
  EXPECT_THROW(type_from_string(""), Error);
}

TEST(Type, KnowsItsMemory) {
  EXPECT_EQ(tensor("tensor<f32, [], cpu>").extent_in_bytes(), 4);
  EXPECT_EQ(tensor("tensor<f32, [4, 8], cpu>").extent_in_bytes(), 128);
  EXPECT_EQ(tensor("tensor<f64, [4, 8], strides=[100, 1], cpu>").extent_in_bytes(), 308 * 8);
  EXPECT_EQ(tensor("tensor<f32, [1000, 8], strides=[0, 1], cpu>").extent_in_bytes(), 32);
  EXPECT_EQ(tensor("tensor<f32, [4, 0], cpu>").extent_in_bytes(), 0);
  EXPECT_EQ(tensor("tensor<f32, [1000, 8], strides=[0, 1], cpu>").num_elements(), 8000);
  EXPECT_THROW(tensor("tensor<f32, [n], cpu>").num_elements(), InternalError);
}

TEST(Type, KnowsWhenItIsContiguous) {
  EXPECT_TRUE(tensor("tensor<f32, [], cpu>").is_contiguous());
  EXPECT_TRUE(tensor("tensor<f32, [1, 4], strides=[77, 1], cpu>").is_contiguous());
  EXPECT_TRUE(tensor("tensor<f32, [0, 4], strides=[77, 5], cpu>").is_contiguous());
  EXPECT_FALSE(tensor("tensor<f32, [2, 4], strides=[1, 2], cpu>").is_contiguous());
  EXPECT_TRUE(tensor("tensor<f32, [n, 4], cpu>").is_contiguous());
}

TEST(Type, RefusesSizesThatOverflow) {
  EXPECT_THROW(TensorType::make(DType::kU8, {int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW(TensorType::make(DType::kU8, {0, int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW(TensorType::make(DType::kU8, {-1}), Error);
  EXPECT_THROW(TensorType::make(DType::kU8, {2}, std::vector<Dim>{-1}), Error);
  EXPECT_THROW(TensorType::make(DType::kU8, {2}, std::vector<Dim>{}), Error);
  TensorType::make(DType::kC128, {int64_t{1} << 40});
}

}  // namespace
}  // namespace hostjit
