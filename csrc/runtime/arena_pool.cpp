// SPDX-License-Identifier: Apache-2.0
#include "runtime/arena_pool.h"

namespace hostjit {

Arena* ArenaPool::take(int64_t bytes) {
  Arena* arena = idle_.exchange(nullptr, std::memory_order_acquire);
  if (arena == nullptr) arena = take_idle();
  if (arena->bytes < bytes) {
    try {
      grow(*arena, bytes);
    } catch (...) {
      give_back(arena);
      throw;
    }
  }
  return arena;
}

Arena* ArenaPool::take_idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!more_idle_.empty()) {
    Arena* arena = more_idle_.back();
    more_idle_.pop_back();
    return arena;
  }
  more_idle_.reserve(arenas_.size() + 1);
  arenas_.push_back(std::make_unique<Arena>());
  return arenas_.back().get();
}

void ArenaPool::grow(Arena& arena, int64_t bytes) {
  // Sizes that grow bit by bit should not move the arena each time.
  const int64_t spare = arena.bytes == 0 ? 0 : bytes / 4;
  arena.memory.reset();
  arena.bytes = 0;
  arena.memory = allocate_aligned(static_cast<size_t>(bytes + spare), alignment_);
  arena.bytes = bytes + spare;
}

void ArenaPool::give_back(Arena* arena) noexcept {
  Arena* nobody = nullptr;
  if (idle_.compare_exchange_strong(nobody, arena, std::memory_order_release,
                                    std::memory_order_relaxed)) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  more_idle_.push_back(arena);
}

}  // namespace hostjit
