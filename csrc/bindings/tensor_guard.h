// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <pybind11/pybind11.h>
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
        rank_(static_cast<size_t>(tensor.dim())),
        extents_(tensor.sizes()) {
    extents_.append(tensor.strides().begin(), tensor.strides().end());
  }

  // Everything but sizes and strides.
  [[gnu::always_inline]] bool matches_of_any_size(const at::Tensor& tensor) const {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    return impl->key_set() == keys_ && impl->dtype() == dtype_ && impl->device() == device_ &&
           autograd_matches(impl);
  }

  // See descriptions.cpp.
  pybind11::dict describe() const;

  bool matches(const at::Tensor& tensor) const {
    return matches_of_any_size(tensor) && extents_match(tensor.unsafeGetTensorImpl());
  }

 private:
  // Needs a gradient or not, and has no tangent of forward-mode differentiation, which no program
  // computes. As TensorImpl::requires_grad(), without its two calls where the tensor is no view.
  bool autograd_matches(const c10::TensorImpl* impl) const {
    using Meta = torch::autograd::AutogradMeta;
    const auto* meta = static_cast<const Meta*>(impl->autograd_meta());
    if (meta == nullptr) return !requires_grad_;
    const bool requires_grad = meta->is_view_ ? meta->requires_grad() : meta->Meta::requires_grad();
    return requires_grad == requires_grad_ && meta->fw_grad_ == nullptr;
  }

  static uint64_t difference_of(int64_t a, int64_t b) {
    return static_cast<uint64_t>(a) ^ static_cast<uint64_t>(b);
  }

  // A loop in place: for a few numbers, the call of memcmp costs more than it compares.
  [[gnu::always_inline]] bool extents_match(const c10::TensorImpl* impl) const {
    const at::IntArrayRef sizes = impl->sizes();
    if (sizes.size() != rank_) return false;
    const int64_t* strides = impl->strides().data();
    const int64_t* expected = extents_.data();
    uint64_t difference = 0;  // one branch for all: they hardly ever differ
    for (size_t i = 0; i < rank_; ++i) {
      difference |= difference_of(sizes.data()[i], expected[i]);
      difference |= difference_of(strides[i], expected[rank_ + i]);
    }
    return difference == 0;
  }

  c10::DispatchKeySet keys_;
  caffe2::TypeMeta dtype_;
  c10::Device device_;
  bool requires_grad_;
  size_t rank_;
  c10::SmallVector<int64_t, 10> extents_;  // sizes, then strides
};

}  // namespace hostjit
