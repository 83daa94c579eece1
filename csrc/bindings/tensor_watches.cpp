// SPDX-License-Identifier: Apache-2.0
#include "bindings/tensor_watches.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "support/check.h"

namespace hostjit {
namespace {

const at::Tensor& tensor_of(const PyRef& object) { return THPVariable_Unpack(object.get()); }

bool has_gradient(const PyRef& tensor) { return tensor_of(tensor).grad().defined(); }

}  // namespace

bool is_plain_leaf(const at::Tensor& tensor) {
  if (!tensor.is_leaf()) return false;
  const auto node = torch::autograd::impl::try_get_grad_accumulator(tensor);
  return !node || (node->pre_hooks().empty() && node->post_hooks().empty());
}

const at::Tensor& TensorWatches::begin_entry(PyObject* tensor, const char* kind) {
  HOSTJIT_ICHECK(THPVariable_Check(tensor), kind, " is of a ", Py_TYPE(tensor)->tp_name,
                 ", expected a tensor");
  any_ = true;
  return THPVariable_Unpack(tensor);
}

void TensorWatches::add_tensor(PyObject* tensor) {
  const at::Tensor& found = begin_entry(tensor, "tensor");
  tensors_.push_back({PyRef::share(tensor), TensorGuard(found)});
}

void TensorWatches::add_no_gradient(PyObject* tensor) {
  begin_entry(tensor, "no_gradient");
  without_gradient_.push_back(PyRef::share(tensor));
}

void TensorWatches::add_has_gradient(PyObject* tensor) {
  begin_entry(tensor, "has_gradient");
  with_gradient_.push_back(PyRef::share(tensor));
}

void TensorWatches::add_plain_leaf(PyObject* tensor) {
  begin_entry(tensor, "plain_leaf");
  plain_leaves_.push_back(PyRef::share(tensor));
}

void TensorWatches::add_gradient(PyObject* tensor) {
  const at::Tensor& gradient = begin_entry(tensor, "gradient").grad();
  HOSTJIT_CHECK(gradient.defined(), "a watched gradient is None");
  gradients_.push_back({PyRef::share(tensor), TensorGuard(gradient)});
}

void TensorWatches::add_unwritten(PyObject* tensor) {
  const at::Tensor& found = begin_entry(tensor, "unwritten");
  unwritten_.push_back({PyRef::share(tensor), found.const_data_ptr(),
                        found.unsafeGetTensorImpl()->version_counter().current_version()});
}

bool TensorWatches::fits_in_place(PyObject* before, PyObject* now) const {
  return std::ranges::all_of(tensors_, [&](const Tensor& entry) {
    return entry.tensor.get() != before || entry.guard.matches(THPVariable_Unpack(now));
  });
}

void TensorWatches::put_in_place(const StandIn& stand_in) {
  for (Tensor& entry : tensors_) entry.tensor = PyRef::share(stand_in(entry.tensor.get()));
}

bool TensorWatches::hold() const {
  const auto keeps = [](const Tensor& entry) {
    return entry.guard.matches(tensor_of(entry.tensor));
  };
  const auto has_like_gradient = [](const Tensor& entry) {
    return has_gradient(entry.tensor) && entry.guard.matches(tensor_of(entry.tensor).grad());
  };
  const auto is_plain = [](const PyRef& tensor) { return is_plain_leaf(tensor_of(tensor)); };
  const auto unwritten = [](const Unwritten& entry) {
    const at::Tensor& found = tensor_of(entry.tensor);
    return found.const_data_ptr() == entry.data &&
           found.unsafeGetTensorImpl()->version_counter().current_version() == entry.version;
  };
  return std::ranges::all_of(tensors_, keeps) &&
         std::ranges::none_of(without_gradient_, has_gradient) &&
         std::ranges::all_of(with_gradient_, has_gradient) &&
         std::ranges::all_of(plain_leaves_, is_plain) &&
         std::ranges::all_of(gradients_, has_like_gradient) &&
         std::ranges::all_of(unwritten_, unwritten);
}

bool TensorWatches::reaches_gradient(std::span<const c10::TensorImpl* const> tensors) const {
  c10::SmallVector<const c10::TensorImpl*, 32> found;
  for (const Tensor& entry : gradients_) {
    found.push_back(tensor_of(entry.tensor).grad().unsafeGetTensorImpl());
  }
  std::ranges::sort(found, std::less<>());
  return std::ranges::adjacent_find(found) != found.end() ||
         std::ranges::any_of(found, [&](const c10::TensorImpl* gradient) {
           return std::ranges::binary_search(tensors, gradient, std::less<>());
         });
}

int TensorWatches::traverse(visitproc visit, void* arg) const {
  for (const auto* entries : {&tensors_, &gradients_}) {
    for (const Tensor& entry : *entries) Py_VISIT(entry.tensor.get());
  }
  for (const auto* entries : {&without_gradient_, &with_gradient_, &plain_leaves_}) {
    for (const PyRef& tensor : *entries) Py_VISIT(tensor.get());
  }
  for (const Unwritten& entry : unwritten_) Py_VISIT(entry.tensor.get());
  return 0;
}

}  // namespace hostjit
