// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "ir/shape_ops.h"
#include "support/check.h"

namespace hostjit {
namespace {

using Operation = IndexOperation;

TEST(IndexOperation, RoundsAsPythonDoes) {
  EXPECT_EQ(apply(Operation::kFloorDiv, 7, 2), 3);
  EXPECT_EQ(apply(Operation::kFloorDiv, -7, 2), -4);
  EXPECT_EQ(apply(Operation::kFloorDiv, 7, -2), -4);
  EXPECT_EQ(apply(Operation::kFloorDiv, -7, -2), 3);
  EXPECT_EQ(apply(Operation::kCeilDiv, 7, 2), 4);
  EXPECT_EQ(apply(Operation::kCeilDiv, -7, 2), -3);
  EXPECT_EQ(apply(Operation::kCeilDiv, 7, -2), -3);
  EXPECT_EQ(apply(Operation::kCeilDiv, 6, 2), 3);
  EXPECT_EQ(apply(Operation::kMod, 7, 3), 1);
  EXPECT_EQ(apply(Operation::kMod, -7, 3), 2);
  EXPECT_EQ(apply(Operation::kMod, 7, -3), -2);
  EXPECT_EQ(apply(Operation::kMod, -6, 3), 0);
}

TEST(IndexOperation, Computes) {
  EXPECT_EQ(apply(Operation::kAdd, 7, -2), 5);
  EXPECT_EQ(apply(Operation::kSub, 7, -2), 9);
  EXPECT_EQ(apply(Operation::kMul, 7, -2), -14);
  EXPECT_EQ(apply(Operation::kMin, 7, -2), -2);
  EXPECT_EQ(apply(Operation::kMax, 7, -2), 7);
}

TEST(IndexOperation, WrapsAroundAndRefusesZero) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(apply(Operation::kAdd, kMost, 1), kLeast);
  EXPECT_EQ(apply(Operation::kMul, kMost, 2), -2);
  EXPECT_EQ(apply(Operation::kFloorDiv, kLeast, -1), kLeast);
  EXPECT_EQ(apply(Operation::kCeilDiv, kLeast, -1), kLeast);
  EXPECT_EQ(apply(Operation::kMod, kLeast, -1), 0);
  for (const Operation operation : {Operation::kFloorDiv, Operation::kCeilDiv, Operation::kMod}) {
    EXPECT_THROW(apply(operation, 1, 0), Error);
  }
}

TEST(IndexOperation, NamesRoundTrip) {
#define HOSTJIT_EXPECT_NAME(enumerator, text)             \
  EXPECT_EQ(to_string(IndexOperation::enumerator), text); \
  EXPECT_EQ(index_operation_from_string(text), IndexOperation::enumerator);
  HOSTJIT_FOR_EACH_INDEX_OPERATION(HOSTJIT_EXPECT_NAME)
#undef HOSTJIT_EXPECT_NAME
}

}  // namespace
}  // namespace hostjit
