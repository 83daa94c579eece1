// SPDX-License-Identifier: Apache-2.0
#include "bindings/tensor_snapshot.h"

#include <typeinfo>

namespace hostjit {

// Not of subclasses of TensorImpl, which answer as they like, nor of sizes kept elsewhere, nor of
// views, whose gradients are a matter of their bases.
bool TensorSnapshot::tells_all_of(const c10::TensorImpl& impl) {
  if (typeid(impl) != typeid(c10::TensorImpl)) return false;
  const char* header = header_of(&impl);
  const auto is_inside = [&](const void* part) {
    return part >= header && part < header + kWords * sizeof(uint64_t);
  };
  const auto* meta = static_cast<const AutogradMeta*>(impl.autograd_meta());
  return is_inside(&impl.unsafe_storage()) && is_inside(impl.sizes().data()) &&
         is_inside(impl.strides().data()) && impl.unsafe_storage() &&
         (meta == nullptr || (!meta->is_view_ && !meta->grad_fn_));
}

void TensorSnapshot::take(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl_ = nullptr;
  if (!tells_all_of(impl)) return;
  storage_ = impl.unsafe_storage().unsafeGetStorageImpl();
  base_ = base_of(*storage_);
  if (base_ == nullptr) return;
  meta_ = static_cast<const AutogradMeta*>(impl.autograd_meta());
  requires_grad_ = meta_ != nullptr && meta_->requires_grad_;
  const int64_t offset = impl.storage_offset() * static_cast<int64_t>(impl.itemsize());
  argument_ = {.data = const_cast<char*>(static_cast<const char*>(base_) + offset),
               .sizes = impl.sizes().data(),
               .strides = impl.strides().data(),
               .tensor = const_cast<at::Tensor*>(&tensor)};
  for (size_t i = 0; i < kWords; ++i) words_[i] = word(header_of(&impl), i);
  impl_ = &impl;
}

}  // namespace hostjit
