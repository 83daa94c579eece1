// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdint>

namespace hostjit {

// Counts the memory of CPU tensors that are alive. Wraps the allocator that was there before.
class CountingAllocator final : public c10::Allocator {
 public:
  // c10 keeps the allocator of the highest priority for good, so there is one per process.
  static CountingAllocator& install() {
    static auto* allocator = [] {
      auto* made = new CountingAllocator(*c10::GetCPUAllocator());
      c10::SetCPUAllocator(made, /*priority=*/100);
      return made;
    }();
    return *allocator;
  }

  int64_t live_blocks() const { return live_blocks_; }
  int64_t allocations() const { return allocations_; }

  c10::DataPtr allocate(size_t bytes) override {
    void* memory = base_.allocate(bytes).release_context();
    if (memory != nullptr) {
      ++live_blocks_;
      ++allocations_;
    }
    // The context is the memory itself, as users of raw_allocate need.
    return {memory, memory, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

 private:
  explicit CountingAllocator(c10::Allocator& base) : base_(base) {}

  static void free_block(void* memory) {
    CountingAllocator& allocator = install();
    --allocator.live_blocks_;
    allocator.base_.raw_deallocate(memory);
  }

  c10::Allocator& base_;
  std::atomic<int64_t> live_blocks_{0};
  std::atomic<int64_t> allocations_{0};
};

}  // namespace hostjit
