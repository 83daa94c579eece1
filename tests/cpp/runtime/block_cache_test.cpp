// SPDX-License-Identifier: Apache-2.0
#include "runtime/block_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace hostjit {
namespace {

TEST(BlockCacheTest, BlocksAreAlignedAndLargeEnough) {
  BlockCache cache;
  for (const size_t bytes : {961, 1024, 1025, 1152, 1153, 2048, 2049, 100000, 4194304}) {
    void* block = cache.take(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % BlockCache::kAlignment, 0) << bytes;
    std::memset(block, 1, bytes);
    cache.give_back(block);
    EXPECT_GE(cache.cached_bytes(), static_cast<int64_t>(bytes));
    EXPECT_LE(cache.cached_bytes(), static_cast<int64_t>(bytes + std::max<size_t>(64, bytes / 8)));
    EXPECT_EQ(cache.take(bytes), block) << bytes;
    EXPECT_EQ(cache.cached_bytes(), 0);
    cache.give_back(block);
    cache.empty();
    EXPECT_EQ(cache.cached_bytes(), 0);
  }
}

TEST(BlockCacheTest, SmallBlocksAreNotKept) {
  BlockCache cache;
  std::vector<void*> blocks;
  for (size_t bytes = 1; bytes <= BlockCache::kMostSmall; ++bytes) {
    void* block = cache.take(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % BlockCache::kAlignment, 0) << bytes;
    EXPECT_FALSE(BlockCache::mark(block));
    std::memset(block, 1, bytes);
    BlockCache::set_mark(block, true);
    EXPECT_TRUE(BlockCache::mark(block));
    blocks.push_back(block);
  }
  for (void* block : blocks) cache.give_back(block);
  EXPECT_EQ(cache.cached_bytes(), 0);
}

TEST(BlockCacheTest, TheLimitHolds) {
  BlockCache cache;
  cache.set_limit(4096);
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(cache.take(1024));
  void* larger = cache.take(2048);
  void* too_large = cache.take(8192);
  for (void* block : blocks) cache.give_back(block);
  EXPECT_EQ(cache.cached_bytes(), 4096);
  cache.give_back(too_large);
  EXPECT_EQ(cache.cached_bytes(), 4096);
  cache.give_back(larger);  // room is made among those that were used longest ago
  EXPECT_EQ(cache.cached_bytes(), 4096);
  cache.set_limit(1024);
  EXPECT_LE(cache.cached_bytes(), 1024);
  cache.set_limit(0);
  EXPECT_EQ(cache.cached_bytes(), 0);
  void* block = cache.take(1024);
  cache.give_back(block);
  EXPECT_EQ(cache.cached_bytes(), 0);
}

TEST(BlockCacheTest, WhatABurstLeftIsTrimmed) {
  BlockCache cache;
  std::vector<void*> burst;
  for (int i = 0; i < 100; ++i) burst.push_back(cache.take(4096));
  for (void* block : burst) cache.give_back(block);
  EXPECT_EQ(cache.cached_bytes(), 100 * 4096);
  for (int i = 0; i < 20 * 1024; ++i) cache.give_back(cache.take(4096));
  EXPECT_LE(cache.cached_bytes(), 2 * 4096);
  EXPECT_GE(cache.cached_bytes(), 4096);
  cache.empty();
}

TEST(BlockCacheTest, ThreadsFreeWhatOthersAllocated) {
  BlockCache cache;
  cache.set_limit(1 << 16);
  constexpr int kRounds = 2000;
  std::vector<std::vector<void*>> blocks(4);
  const auto work = [&](int thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < kRounds; ++i) {
      const size_t bytes = 1 + random() % 5000;
      auto* block = static_cast<unsigned char*>(cache.take(bytes));
      std::memset(block, thread, bytes);
      EXPECT_EQ(block[bytes - 1], thread);
      if (i % 2 == 0) {
        cache.give_back(block);
      } else {
        blocks[thread].push_back(block);
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (void* block : blocks[(i + 1) % 4]) cache.give_back(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.cached_bytes(), 1 << 16);
  cache.empty();
  EXPECT_EQ(cache.cached_bytes(), 0);
}

}  // namespace
}  // namespace hostjit
