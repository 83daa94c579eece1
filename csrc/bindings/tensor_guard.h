// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/variable.h>

namespace hostjit {

// What a specialization assumes of one tensor: everything but its data, and that it is no dual
// number of forward-mode differentiation. The key set covers layout, quantisation, conjugation,
// inference, fake and functional tensors.
class TensorGuard {
 public:
  explicit TensorGuard(const at::Tensor& tensor)
      : keys_(tensor.key_set()),
        dtype_(tensor.dtype()),
        device_(tensor.device()),
        requires_grad_(tensor.requires_grad()),
        sizes_(tensor.sizes()),
        strides_(tensor.strides()) {}

  // Everything but sizes and strides.
  bool matches_of_any_size(const at::Tensor& tensor) const {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    return impl->key_set() == keys_ && impl->dtype() == dtype_ && impl->device() == device_ &&
           impl->requires_grad() == requires_grad_ && !has_tangent(impl);
  }

  bool matches(const at::Tensor& tensor) const {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    return impl->key_set() == keys_ && impl->dtype() == dtype_ && impl->device() == device_ &&
           equal(impl->sizes(), sizes_) && equal(impl->strides(), strides_) &&
           impl->requires_grad() == requires_grad_ && !has_tangent(impl);
  }

 private:
  // Of forward-mode differentiation, which no program computes.
  static bool has_tangent(const c10::TensorImpl* impl) {
    const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
    return meta != nullptr && meta->fw_grad_ != nullptr;
  }

  // A loop in place: for a few numbers, the call of memcmp costs more than it compares.
  static bool equal(at::IntArrayRef found, const c10::SmallVector<int64_t, 5>& expected) {
    const size_t rank = expected.size();
    if (found.size() != rank) return false;
    for (size_t i = 0; i < rank; ++i) {
      if (found.data()[i] != expected.data()[i]) return false;
    }
    return true;
  }

  c10::DispatchKeySet keys_;
  caffe2::TypeMeta dtype_;
  c10::Device device_;
  bool requires_grad_;
  c10::SmallVector<int64_t, 5> sizes_;
  c10::SmallVector<int64_t, 5> strides_;
};

}  // namespace hostjit
