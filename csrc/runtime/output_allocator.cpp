// SPDX-License-Identifier: Apache-2.0
#include "runtime/output_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HOSTJIT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || \
    __has_feature(thread_sanitizer)
#define HOSTJIT_SANITIZED 1
#endif
#endif

namespace hostjit {
namespace {

#ifdef HOSTJIT_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

void give_back(void* memory) {
  // Only what was reported is taken back, which saves the look at the thread's profiler.
  if (BlockCache::mark(memory)) [[unlikely]] {
    c10::profiledCPUMemoryReporter().Delete(memory);
    BlockCache::set_mark(memory, false);
  }
  output_cache().give_back(memory);
}

class OutputAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &give_back, cpu};
    void* memory = output_cache().take(bytes);
    if (c10::memoryProfilingEnabled()) [[unlikely]] {
      c10::profiledCPUMemoryReporter().New(memory, bytes);
      BlockCache::set_mark(memory, true);
    }
    return {memory, memory, &give_back, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

}  // namespace

// This and the allocator are leaked: tensors outlive static destruction.
BlockCache& output_cache() {
  static BlockCache& cache = *[] {
    pthread_atfork([] { output_cache().before_fork(); }, [] { output_cache().after_fork(); },
                   [] { output_cache().after_fork(); });
    return new BlockCache();
  }();
  return cache;
}

c10::Allocator* output_allocator() {
  c10::Allocator* current = c10::GetCPUAllocator();
  if constexpr (kSanitized) {
    return current;
  } else {
    static auto* const kOurs = new OutputAllocator();
    static c10::Allocator* const kStandard = c10::GetDefaultCPUAllocator();
    return current == kStandard ? kOurs : current;
  }
}

}  // namespace hostjit
