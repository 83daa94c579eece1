// SPDX-License-Identifier: Apache-2.0
#include "bindings/tensor_rows.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

#include "support/check.h"

namespace hostjit {
namespace {

// The plain tensor that an object is, without gradients; null for anything else.
const at::Tensor* plain_tensor(PyObject* object) {
  if (!THPVariable_CheckExact(object)) return nullptr;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  const bool is_plain = tensor.layout() == at::kStrided && !tensor.requires_grad() &&
                        !tensor.is_conj() && !tensor.is_neg();
  return is_plain ? &tensor : nullptr;
}

bool is_same_form(const at::Tensor& row, const at::Tensor& first) {
  return row.storage().is_alias_of(first.storage()) && row.key_set() == first.key_set() &&
         row.dtype() == first.dtype() && row.sizes() == first.sizes() &&
         row.strides() == first.strides();
}

}  // namespace

std::optional<at::Tensor> tensor_of_rows(PyObject* tuple) {
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  const at::Tensor* const first = count > 1 ? plain_tensor(PyTuple_GET_ITEM(tuple, 0)) : nullptr;
  if (first == nullptr) return std::nullopt;
  int64_t step = 0;
  for (Py_ssize_t place = 1; place < count; ++place) {
    const at::Tensor* const row = plain_tensor(PyTuple_GET_ITEM(tuple, place));
    if (row == nullptr || !is_same_form(*row, *first)) return std::nullopt;
    const int64_t behind = row->storage_offset() - first->storage_offset();
    if (place == 1) step = behind;
    if (step < 1 || behind != place * step) return std::nullopt;
  }
  std::vector<int64_t> sizes{count};
  std::vector<int64_t> strides{step};
  sizes.insert(sizes.end(), first->sizes().begin(), first->sizes().end());
  strides.insert(strides.end(), first->strides().begin(), first->strides().end());
  return first->as_strided(sizes, strides);
}

std::vector<at::Tensor> copies_of_rows(const at::Tensor& rows, int64_t count) {
  HOSTJIT_CHECK(rows.is_cpu() && rows.is_contiguous() && rows.dim() > 0 && count <= rows.size(0),
                "copies of ", count, " rows need a contiguous tensor on the CPU with as many");
  const at::IntArrayRef sizes = rows.sizes().slice(1);
  const size_t bytes = rows.element_size() * static_cast<size_t>(c10::multiply_integers(sizes));
  const auto* row = static_cast<const char*>(rows.const_data_ptr());
  std::vector<at::Tensor> copies;
  copies.reserve(static_cast<size_t>(count));
  for (int64_t place = 0; place < count; ++place, row += bytes) {
    copies.emplace_back(at::detail::empty_cpu(sizes, rows.scalar_type()));
    if (bytes != 0) std::memcpy(copies.back().mutable_data_ptr(), row, bytes);
  }
  return copies;
}

}  // namespace hostjit
