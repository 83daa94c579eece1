// SPDX-License-Identifier: Apache-2.0
#include "passes/arena_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace hostjit {
namespace {

using Buffers = std::vector<LiveBytes>;
using Offsets = std::vector<int64_t>;

bool is_disjoint(const Buffers& buffers, const ArenaPlacement& placement) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int64_t end = placement.offsets[i] + buffers[i].bytes;
    if (end > placement.bytes) return false;
    for (size_t j = 0; j < i; ++j) {
      const int64_t other_end = placement.offsets[j] + buffers[j].bytes;
      const bool apart = end <= placement.offsets[j] || other_end <= placement.offsets[i];
      if (buffers[i].overlaps(buffers[j]) && !apart) return false;
    }
  }
  return true;
}

TEST(ArenaPlacement, OfNothingIsEmpty) {
  EXPECT_EQ(place_in_arena({}, 64).bytes, 0);
  EXPECT_EQ(most_bytes_live({}), 0);
}

TEST(ArenaPlacement, SharesBytesOfBuffersThatAreNotAliveTogether) {
  const Buffers buffers = {{64, 0, 2}, {64, 1, 3}, {64, 2, 4}};
  const ArenaPlacement placement = place_in_arena(buffers, 64);
  EXPECT_EQ(placement.bytes, 128);
  EXPECT_EQ(placement.offsets[0], placement.offsets[2]);
  EXPECT_TRUE(is_disjoint(buffers, placement));
}

TEST(ArenaPlacement, RoundsUpToTheAlignment) {
  const Buffers buffers = {{1, 0, 2}, {65, 0, 2}, {4, 0, 2}};
  const ArenaPlacement placement = place_in_arena(buffers, 64);
  EXPECT_EQ(placement.bytes, 256);
  for (const int64_t offset : placement.offsets) EXPECT_EQ(offset % 64, 0);
  EXPECT_EQ(most_bytes_live(buffers), 70);
}

TEST(ArenaPlacement, GivesEmptyBuffersNoBytes) {
  const Buffers buffers = {{0, 0, 2}, {64, 0, 2}, {0, 0, 2}};
  EXPECT_EQ(place_in_arena(buffers, 64).offsets, (Offsets{0, 0, 0}));
}

TEST(ArenaPlacement, MeetsTheBoundWhereOneGreedyOrderFails) {
  // By falling size alone this takes 6 bytes, with either fit.
  const Buffers buffers = {{3, 4, 5}, {4, 1, 2}, {2, 2, 5}, {1, 1, 3}};
  const ArenaPlacement placement = place_in_arena(buffers, 1);
  EXPECT_EQ(placement.bytes, 5);
  EXPECT_TRUE(is_disjoint(buffers, placement));
}

TEST(ArenaPlacement, OfRandomBuffersIsDisjointAndNearTheBound) {
  std::mt19937 random(7);
  const auto below = [&](int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
  };
  double worst = 1;
  for (int round = 0; round < 200; ++round) {
    Buffers buffers;
    for (int64_t i = 10 + below(90); i > 0; --i) {
      const int64_t begin = below(100);
      buffers.push_back({64 * below(40), begin, begin + 1 + below(12)});
    }
    const ArenaPlacement placement = place_in_arena(buffers, 64);
    ASSERT_TRUE(is_disjoint(buffers, placement));
    const int64_t bound = most_bytes_live(buffers);
    ASSERT_GE(placement.bytes, bound);
    worst = std::max(worst, static_cast<double>(placement.bytes) / static_cast<double>(bound));
    const ArenaPlacement quick = place_in_arena(buffers, 64, Effort::kQuick);
    ASSERT_TRUE(is_disjoint(buffers, quick));
    ASSERT_LE(quick.bytes, 2 * bound);
  }
  EXPECT_LT(worst, 1.1);
}

}  // namespace
}  // namespace hostjit
