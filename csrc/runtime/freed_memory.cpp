// SPDX-License-Identifier: Apache-2.0
#include "runtime/freed_memory.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace hostjit {
namespace {

// malloc keeps up to 128 KiB anyway.
constexpr int64_t kLeast = 32 << 10;
// The largest block that counts, without what malloc adds to it.
constexpr int64_t kMost = (32 << 20) - (64 << 10);
// Eight of the blocks may then lie unused.
constexpr int64_t kBlocks = 4;

}  // namespace

void keep_freed_memory(int64_t bytes) {
  static std::atomic<int64_t> largest = 0;
  if (bytes < kLeast) return;
  const int64_t block = std::min(bytes, kMost / kBlocks) * kBlocks;
  if (block <= largest.load(std::memory_order_relaxed)) return;
  largest.store(block, std::memory_order_relaxed);
  // Volatile, or the compiler omits both calls.
  void* volatile memory = std::malloc(static_cast<size_t>(block));
  std::free(memory);
}

}  // namespace hostjit
