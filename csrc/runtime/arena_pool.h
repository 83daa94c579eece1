// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/frame_storage.h"

namespace hostjit {

// The arenas that the rows of one program share: one for each call in flight, as large as the
// largest row that has used it. Between calls nothing in them counts. Thread-safe.
class ArenaPool {
 public:
  explicit ArenaPool(int64_t alignment) : alignment_(alignment) {}
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

  // One of at least `bytes`. An atomic exchange when uncontended.
  Arena* take(int64_t bytes);
  void give_back(Arena* arena) noexcept;

 private:
  Arena* take_idle();
  void grow(Arena& arena, int64_t bytes);

  int64_t alignment_;
  std::atomic<Arena*> idle_{nullptr};
  std::mutex mutex_;
  // Guarded by mutex_: every arena ever made, and the idle ones besides idle_. The capacity of
  // more_idle_ covers all, so that give_back never allocates.
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<Arena*> more_idle_;
};

}  // namespace hostjit
