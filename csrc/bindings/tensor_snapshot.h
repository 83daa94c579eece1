// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "runtime/abi.h"

namespace hostjit {

// The words of a tensor's header when its guard last matched. While they are the same the guard
// still does, and a program takes the tensor as it did then. To compare them takes half the
// instructions of a look through TensorImpl's accessors, and no load waits for another.
//
// Some of these words mean nothing to a guard (the Python object, dims that the tensor doesn't
// have): a difference says no more than that the guard has to look.
class TensorSnapshot {
 public:
  // Of a tensor whose guard matches, at a place where it stays or becomes another one.
  void take(const at::Tensor& tensor);

  // False, too, where none was taken.
  [[gnu::always_inline]] bool is_current() const {
    if (impl_ == nullptr || tensor().unsafeGetTensorImpl() != impl_) return false;
    const char* header = header_of(impl_);
    uint64_t difference = 0;
    for (size_t i = 0; i < kWords; ++i) difference |= word(header, i) ^ words_[i];
    // The header owns the storage and what autograd knows of the tensor.
    return difference == 0 && base_of(*storage_) == base_ && (meta_ == nullptr || is_leaf(*meta_));
  }

  // How a program takes the tensor, or null: no snapshot was taken.
  const TensorArg* argument() const { return impl_ != nullptr ? &argument_ : nullptr; }

 private:
  using AutogradMeta = torch::autograd::AutogradMeta;

  // From TensorImpl's storage to its end: pointers to the storage and to autograd's state, sizes
  // and strides, offset, dtype, device, flags and key set.
  static constexpr size_t kStart = sizeof(c10::intrusive_ptr_target);
  static constexpr size_t kWords = (sizeof(c10::TensorImpl) - kStart) / sizeof(uint64_t);

  static const char* header_of(const c10::TensorImpl* impl) {
    return reinterpret_cast<const char*>(impl) + kStart;
  }
  static uint64_t word(const char* header, size_t i) {
    uint64_t value = 0;
    std::memcpy(&value, header + i * sizeof value, sizeof value);
    return value;
  }
  static bool tells_all_of(const c10::TensorImpl& impl);
  static const void* base_of(c10::StorageImpl& storage) {
    return storage._mutable_data_ptr_no_checks().get();
  }
  bool is_leaf(const AutogradMeta& meta) const {
    return meta.requires_grad_ == requires_grad_ && !meta.is_view_ && !meta.grad_fn_ &&
           meta.fw_grad_ == nullptr;
  }
  const at::Tensor& tensor() const { return *static_cast<const at::Tensor*>(argument_.tensor); }

  const c10::TensorImpl* impl_ = nullptr;  // null: no snapshot
  TensorArg argument_{};
  c10::StorageImpl* storage_ = nullptr;
  const void* base_ = nullptr;          // of the storage
  const AutogradMeta* meta_ = nullptr;  // or none
  bool requires_grad_ = false;
  std::array<uint64_t, kWords> words_{};
};

}  // namespace hostjit
