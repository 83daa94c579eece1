// SPDX-License-Identifier: Apache-2.0
#include "bindings/expected_tensor.h"

#include <ATen/ops/empty_strided.h>

#include "runtime/tensor_header.h"
#include "runtime/torch_types.h"
#include "support/check.h"

namespace hostjit {

ExpectedTensor::ExpectedTensor(const TensorType& type)
    : type_{type.dtype, type.device, type.sizes(), type.static_strides()},
      bytes_(extent_in_bytes(type_)),
      dtype_(to_torch(type.dtype)),
      device_(to_torch(type.device)) {}

bool ExpectedTensor::has_strides(const at::Tensor& tensor) const {
  const at::IntArrayRef strides = tensor.strides();
  for (size_t dim = 0; dim < type_.sizes.size(); ++dim) {
    if (type_.sizes[dim] != 1 && strides[dim] != type_.strides[dim]) return false;
  }
  return true;
}

at::Tensor ExpectedTensor::make() const {
  if (type_.device.type == DeviceType::kCPU) return new_cpu_tensor(type_, bytes_);
  return at::empty_strided(type_.sizes, type_.strides,
                           at::TensorOptions().dtype(dtype_).device(device_));
}

at::Tensor ExpectedTensor::conform(at::Tensor tensor, std::string_view what) const {
  HOSTJIT_CHECK(tensor.layout() == c10::kStrided && tensor.has_storage() &&
                    !tensor.key_set().has_any(c10::python_ks),
                what, " is no plain strided tensor: ", tensor.toString());
  HOSTJIT_CHECK(tensor.scalar_type() == dtype_ && tensor.device() == device_ &&
                    tensor.sizes() == at::IntArrayRef(type_.sizes),
                what, " is a ", tensor.scalar_type(), " tensor of sizes ", tensor.sizes(), " on ",
                tensor.device(), ", expected ", dtype_, " of sizes ", at::IntArrayRef(type_.sizes),
                " on ", device_);
  if (has_strides(tensor) && !tensor.is_conj() && !tensor.is_neg()) [[likely]]
    return tensor;
  at::Tensor copy = make();
  if (tensor.numel() == 0) return copy;
  copy.copy_(tensor);
  return copy;
}

at::Tensor ExpectedTensor::zeros() const {
  at::Tensor tensor = make();
  tensor.zero_();
  return tensor;
}

}  // namespace hostjit
