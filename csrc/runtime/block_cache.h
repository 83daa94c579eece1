// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace hostjit {

// Blocks of memory that were freed and wait to be used again, in free lists by size class. What a
// new block costs beyond the call of malloc are page faults: a thousand for 4 MB. Small blocks are
// malloc's: it keeps what a thread freed itself, without the lock that is needed here.
//
// Thread-safe: a block may be given back by any thread, at any time, after static destruction too
// (the object is to be leaked). Holds at most `limit` bytes, and in the long run no more blocks of
// a class than are in use at the same time.
class BlockCache {
 public:
  static constexpr int64_t kDefaultLimit = int64_t{256} * 1024 * 1024;
  // Of every block's first byte.
  static constexpr size_t kAlignment = 64;
  // Of blocks that are malloc's. glibc keeps up to 1032 bytes per thread, of which we add 64.
  static constexpr size_t kMostSmall = 960;

  // Uninitialised memory of at least `bytes` > 0. Throws what c10::alloc_cpu throws.
  void* take(size_t bytes) {
    if (bytes > kMostSmall) return take_kept(bytes);
    auto* memory = static_cast<std::byte*>(std::malloc(bytes + kAlignment));
    if (memory == nullptr) [[unlikely]]
      return take_kept(bytes);
    // malloc aligns to 16: a tag fits before the block.
    auto* block = memory + (kAlignment - reinterpret_cast<uintptr_t>(memory) % kAlignment);
    new (block - sizeof(Tag)) Tag{memory, kSmall, false};
    return block;
  }
  // Keeps the block, or frees it when it does not fit under the limit.
  void give_back(void* block) noexcept {
    const Tag* tag = tag_of(block);
    if (tag->size_class != kSmall) return keep(block);
    std::free(tag->memory);
  }

  // A mark on a block in use, false at first.
  static void set_mark(void* block, bool mark) { tag_of(block)->mark = mark; }
  static bool mark(void* block) { return tag_of(block)->mark; }

  // Frees every block kept.
  void empty() noexcept;
  // Frees blocks until no more than `bytes` are kept, now and later; 0 keeps none.
  void set_limit(int64_t bytes) noexcept;
  int64_t limit() const;
  int64_t cached_bytes() const;

  // Around a fork, whose child has no thread that could finish a change under way.
  void before_fork() noexcept { lock_.lock(); }
  void after_fork() noexcept { lock_.unlock(); }

  BlockCache() = default;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

 private:
  // Stands before each block.
  struct Tag {
    void* memory;  // of a small block, as malloc returned it
    uint32_t size_class;
    bool mark;
  };
  static_assert(sizeof(Tag) == alignof(std::max_align_t));
  // Stands before each block that is not small; its tag is the last of it.
  struct alignas(kAlignment) Header {
    Header* next;
    int64_t bytes;  // of the block
    std::byte unused[kAlignment - sizeof(Header*) - sizeof(int64_t) - sizeof(Tag)];
    Tag tag;
  };
  struct SizeClass {
    Header* first = nullptr;
    uint32_t count = 0;
    // Fewest blocks that lay here since the last trim: so many are not needed.
    uint32_t low_water = 0;
    uint32_t takes = 0;      // since the last trim
    uint64_t last_take = 0;  // by clock_
  };
  // Held for a few instructions; a mutex would cost more than what it protects.
  class SpinLock {
   public:
    void lock() noexcept;
    void unlock() noexcept { taken_.store(false, std::memory_order_release); }

   private:
    std::atomic<bool> taken_{false};
  };

  // Multiples of 64 bytes to 1 KiB, then 8 classes per power of two: at most an eighth is unused.
  static constexpr uint32_t kNumLinear = 16;
  static constexpr uint32_t kNumClasses = kNumLinear + 8 * 26;  // to 64 GiB
  static constexpr uint32_t kSmall = kNumClasses + 1;
  static constexpr uint32_t kTrimPeriod = 1024;

  // The class for that many bytes and the bytes of its blocks.
  static std::pair<uint32_t, int64_t> class_of(size_t bytes);
  static Tag* tag_of(void* block) { return static_cast<Tag*>(block) - 1; }
  static Header* header_of(void* block) { return static_cast<Header*>(block) - 1; }
  static void free_all(Header* blocks) noexcept;

  void* take_kept(size_t bytes);
  void keep(void* block) noexcept;
  Header* pop(SizeClass& from) noexcept;
  // These return what the caller has to free after it unlocked.
  Header* trim(SizeClass& from) noexcept;
  Header* make_room(int64_t bytes) noexcept;

  mutable SpinLock lock_;  // guards everything below
  std::array<SizeClass, kNumClasses> classes_;
  int64_t limit_ = kDefaultLimit;
  int64_t cached_bytes_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace hostjit
