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
    auto* block = new Block{base_.allocate(bytes), &live_blocks_};
    ++live_blocks_;
    ++allocations_;
    return {block->memory.get(), block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

 private:
  struct Block {
    c10::DataPtr memory;
    std::atomic<int64_t>* live_blocks;
  };

  explicit CountingAllocator(c10::Allocator& base) : base_(base) {}

  static void free_block(void* context) {
    auto* block = static_cast<Block*>(context);
    --*block->live_blocks;
    delete block;
  }

  c10::Allocator& base_;
  std::atomic<int64_t> live_blocks_{0};
  std::atomic<int64_t> allocations_{0};
};

}  // namespace hostjit
