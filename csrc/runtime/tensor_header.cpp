// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor_header.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include "runtime/output_allocator.h"
#include "runtime/torch_types.h"
#include "support/check.h"

namespace hostjit {

namespace {

at::Tensor tensor_with(c10::Storage storage, const TensorSpec& type) {
  const bool is_cuda = type.device.type == DeviceType::kCUDA;
  const c10::DispatchKey key = is_cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key),
      caffe2::TypeMeta::fromScalarType(to_torch(type.dtype)));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(type.sizes, type.strides);
  return tensor;
}

at::Tensor alias_as(const at::Tensor& source, caffe2::TypeMeta dtype, at::IntArrayRef sizes,
                    at::IntArrayRef strides, int64_t first) {
  const c10::TensorImpl* impl = source.unsafeGetTensorImpl();
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(source.storage()), impl->key_set(), dtype);
  c10::TensorImpl* result = tensor.unsafeGetTensorImpl();
  result->set_sizes_and_strides(sizes, strides, first);
  if (!source.is_inference()) result->set_version_counter(impl->version_counter());
  return tensor;
}

}  // namespace

int64_t extent_in_bytes(const TensorSpec& type) {
  return static_cast<int64_t>(
      at::detail::computeStorageNbytes(type.sizes, type.strides, size_in_bytes(type.dtype)));
}

at::Tensor new_cpu_tensor(const TensorSpec& type, int64_t bytes) {
  c10::Allocator* allocator = output_allocator();
  return tensor_with(c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                                  allocator->allocate(bytes), allocator, /*resizable=*/true),
                     type);
}

at::Tensor new_cuda_tensor(const TensorSpec& type, int64_t bytes) {
  c10::Allocator* allocator = c10::GetAllocator(c10::DeviceType::CUDA);
  return tensor_with(c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                                  allocator->allocate(bytes), allocator, /*resizable=*/true),
                     type);
}

at::Tensor tensor_over(void* data, const TensorSpec& type) {
  return tensor_with(c10::Storage(c10::Storage::use_byte_size_t(), extent_in_bytes(type),
                                  c10::DataPtr(data, to_torch(type.device)), /*allocator=*/nullptr,
                                  /*resizable=*/false),
                     type);
}

at::Tensor alias_of(const at::Tensor& source, at::IntArrayRef sizes, at::IntArrayRef strides,
                    int64_t offset) {
  return alias_as(source, source.dtype(), sizes, strides, source.storage_offset() + offset);
}

at::Tensor view_of(const at::Tensor& source, at::ScalarType dtype, at::IntArrayRef sizes,
                   at::IntArrayRef strides, int64_t offset, bool is_hidden) {
  const auto type = caffe2::TypeMeta::fromScalarType(dtype);
  // A complex number has two real ones; the first of them is not in the midst of one.
  const auto bytes = static_cast<int64_t>(source.itemsize());
  const int64_t first = source.storage_offset() * bytes / static_cast<int64_t>(type.itemsize());
  if (is_hidden) return alias_as(source, type, sizes, strides, first + offset);
  if (source.scalar_type() == dtype) return at::as_strided(source, sizes, strides, first + offset);
  if (source.is_complex()) {
    return at::as_strided(at::view_as_real(source), sizes, strides, first + offset);
  }
  at::DimVector with_pairs(sizes);
  with_pairs.push_back(2);
  at::DimVector steps;
  for (const int64_t stride : strides) steps.push_back(2 * stride);
  steps.push_back(1);
  return at::view_as_complex(at::as_strided(source, with_pairs, steps, 2 * (first + offset)));
}

}  // namespace hostjit
