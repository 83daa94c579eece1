// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace hostjit {

// The tensors that a call made for its outputs, by slot, to be written again by another call of the
// same program.
class KeptTensors {
 public:
  struct Entry {
    int64_t slot;
    at::Tensor tensor;
  };

  // For the slot that a call allocates: the tensor kept for it, counted as written, or an undefined
  // one.
  at::Tensor take(int64_t slot) {
    Entry* entry = find(slot);
    if (entry == nullptr) {
      entries_.push_back({slot, {}});
      return {};
    }
    if (entry->tensor.defined()) entry->tensor.unsafeGetTensorImpl()->bump_version();
    return std::move(entry->tensor);
  }
  // For the slot that a call returns. What the call did not allocate itself (views, results of
  // operators) is not kept.
  void keep(int64_t slot, const at::Tensor& tensor) noexcept {
    if (Entry* entry = find(slot)) entry->tensor = tensor;
  }

  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  Entry* find(int64_t slot) {
    for (Entry& entry : entries_) {
      if (entry.slot == slot) return &entry;
    }
    return nullptr;
  }

  std::vector<Entry> entries_;
};

}  // namespace hostjit
