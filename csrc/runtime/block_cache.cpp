// SPDX-License-Identifier: Apache-2.0
#include "runtime/block_cache.h"

#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

namespace hostjit {
namespace {

constexpr int kSpinsBeforeYield = 64;

}  // namespace

void BlockCache::SpinLock::lock() noexcept {
  while (taken_.exchange(true, std::memory_order_acquire)) {
    // Its holder may have lost its core.
    for (int spins = 0; taken_.load(std::memory_order_relaxed); ++spins) {
      if (spins >= kSpinsBeforeYield) std::this_thread::yield();
    }
  }
}

std::pair<uint32_t, int64_t> BlockCache::class_of(size_t bytes) {
  constexpr size_t kSmallest = 64;
  if (bytes <= kSmallest * kNumLinear) {
    const size_t index = (bytes - 1) / kSmallest;
    return {static_cast<uint32_t>(index), static_cast<int64_t>((index + 1) * kSmallest)};
  }
  const auto power =
      static_cast<unsigned>(std::bit_width(bytes - 1)) - 1;  // 2^power < bytes <= 2^(power + 1)
  const size_t step = size_t{1} << (power - 3);
  const size_t steps = (bytes - 1 - (size_t{1} << power)) / step;  // 0 to 7
  const auto size_class = static_cast<uint32_t>(kNumLinear + 8 * (power - 10) + steps);
  if (size_class >= kNumClasses) return {kNumClasses, static_cast<int64_t>(bytes)};
  return {size_class, static_cast<int64_t>((size_t{1} << power) + (steps + 1) * step)};
}

void BlockCache::free_all(Header* blocks) noexcept {
  while (blocks != nullptr) c10::free_cpu(std::exchange(blocks, blocks->next));
}

BlockCache::Header* BlockCache::pop(SizeClass& from) noexcept {
  Header* block = from.first;
  from.first = block->next;
  from.low_water = std::min(from.low_water, --from.count);
  cached_bytes_ -= block->bytes;
  return block;
}

BlockCache::Header* BlockCache::trim(SizeClass& from) noexcept {
  Header* freed = nullptr;
  const uint32_t kept = from.count - (from.low_water + 1) / 2;
  while (from.first != nullptr && from.count > kept) {
    Header* block = pop(from);
    block->next = freed;
    freed = block;
  }
  from.takes = 0;
  from.low_water = from.count;
  return freed;
}

BlockCache::Header* BlockCache::make_room(int64_t bytes) noexcept {
  Header* freed = nullptr;
  while (cached_bytes_ + bytes > limit_) {
    SizeClass* oldest = nullptr;
    for (SizeClass& candidate : classes_) {
      if (candidate.count == 0) continue;
      if (oldest == nullptr || candidate.last_take < oldest->last_take) oldest = &candidate;
    }
    if (oldest == nullptr) break;
    Header* block = pop(*oldest);
    block->next = freed;
    freed = block;
  }
  return freed;
}

void* BlockCache::take_kept(size_t bytes) {
  const auto [size_class, class_bytes] = class_of(bytes);
  Header* block = nullptr;
  Header* unused = nullptr;
  if (size_class < kNumClasses) {
    const std::lock_guard<SpinLock> lock(lock_);
    SizeClass& from = classes_[size_class];
    from.last_take = ++clock_;
    if (from.first != nullptr) block = pop(from);
    if (++from.takes >= kTrimPeriod) [[unlikely]]
      unused = trim(from);
  }
  if (unused != nullptr) [[unlikely]]
    free_all(unused);
  if (block == nullptr) [[unlikely]] {
    const size_t total = sizeof(Header) + class_bytes;
    void* memory = nullptr;
    try {
      memory = c10::alloc_cpu(total);
    } catch (const c10::Error&) {
      empty();  // what lies here may be what is missing
      memory = c10::alloc_cpu(total);
    }
    block = new (memory) Header{nullptr, class_bytes, {}, {nullptr, size_class, false}};
  }
  return block + 1;
}

void BlockCache::keep(void* memory) noexcept {
  Header* block = header_of(memory);
  Header* freed = nullptr;
  if (block->tag.size_class >= kNumClasses) {
    c10::free_cpu(block);
    return;
  }
  {
    const std::lock_guard<SpinLock> lock(lock_);
    if (block->bytes > limit_) [[unlikely]] {
      block->next = nullptr;
      freed = block;
    } else {
      if (cached_bytes_ + block->bytes > limit_) [[unlikely]]
        freed = make_room(block->bytes);
      SizeClass& into = classes_[block->tag.size_class];
      block->next = into.first;
      into.first = block;
      ++into.count;
      cached_bytes_ += block->bytes;
    }
  }
  if (freed != nullptr) [[unlikely]]
    free_all(freed);
}

void BlockCache::empty() noexcept {
  Header* freed = nullptr;
  {
    const std::lock_guard<SpinLock> lock(lock_);
    const int64_t limit = std::exchange(limit_, 0);
    freed = make_room(0);
    limit_ = limit;
  }
  free_all(freed);
}

void BlockCache::set_limit(int64_t bytes) noexcept {
  Header* freed = nullptr;
  {
    const std::lock_guard<SpinLock> lock(lock_);
    limit_ = bytes;
    freed = make_room(0);
  }
  free_all(freed);
}

int64_t BlockCache::limit() const {
  const std::lock_guard<SpinLock> lock(lock_);
  return limit_;
}

int64_t BlockCache::cached_bytes() const {
  const std::lock_guard<SpinLock> lock(lock_);
  return cached_bytes_;
}

}  // namespace hostjit
