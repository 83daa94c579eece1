// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "ir/program.h"
#include "runtime/abi.h"

namespace hostjit {

// The input array that a program's main wants, for one call. Lives on the stack of the call.
class ProgramArguments {
 public:
  // `frame` is the one of the call.
  ProgramArguments(const Program& program, Frame* frame) : program_(program) {
    const size_t num_inputs = program.inputs().size();
    // Used by position, within the capacity: inputs_ points into the others.
    tensors_.reserve(num_inputs);
    scalars_.reserve(num_inputs);
    inputs_.reserve(num_inputs + 1);
    inputs_.data()[0] = frame;
  }
  ProgramArguments(const ProgramArguments&) = delete;
  ProgramArguments& operator=(const ProgramArguments&) = delete;

  // Input i. `tensor` outlives the call. Throws Error when its storage was emptied: eager reads
  // through the null pointer.
  [[gnu::always_inline]] void set_tensor(size_t i, const at::Tensor& tensor) {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    const void* data = first_element(impl);
    if (data == nullptr) [[unlikely]]
      check_is_empty(i, *impl);
    // Field by field: a struct on the stack would be copied by loads wider than its stores.
    TensorArg& argument = tensors_.data()[i];
    argument.data = const_cast<void*>(data);
    argument.sizes = impl->sizes().data();
    argument.strides = impl->strides().data();
    argument.tensor = const_cast<at::Tensor*>(&tensor);
    inputs_.data()[i + 1] = &argument;
  }
  // As set_tensor() of the tensor that `argument` was made for.
  [[gnu::always_inline]] void set_argument(size_t i, const TensorArg& argument) {
    tensors_.data()[i] = argument;
    inputs_.data()[i + 1] = &tensors_.data()[i];
  }
  void set_index(size_t i, int64_t value) {
    scalars_.data()[i] = value;
    inputs_.data()[i + 1] = &scalars_.data()[i];
  }
  void set_stream(size_t i, StreamArg stream) {
    streams_.reserve(program_.inputs().size());
    streams_.push_back(stream);
    inputs_.data()[i + 1] = &streams_.back();
  }
  void set_f64(size_t i, double value) { set_index(i, std::bit_cast<int64_t>(value)); }

  void* const* inputs() const { return inputs_.data() + 1; }

 private:
  // As TensorImpl::data(), without its virtual calls where the tensor has a storage.
  static const void* first_element(const c10::TensorImpl* impl) {
    const c10::Storage& storage = impl->unsafe_storage();
    if (!storage) [[unlikely]]
      return impl->data();
    const auto* base = static_cast<const char*>(storage.unsafeGetStorageImpl()->data());
    const int64_t offset = impl->storage_offset();
    if (offset == 0 || base == nullptr) return base;
    return base + offset * static_cast<int64_t>(impl->itemsize());
  }
  void check_is_empty(size_t i, const c10::TensorImpl& impl) const;

  const Program& program_;
  c10::SmallVector<TensorArg, 16> tensors_;
  c10::SmallVector<int64_t, 16> scalars_;  // int64_t or the bits of a double
  std::vector<StreamArg> streams_;         // used by few programs
  c10::SmallVector<void*, 17> inputs_;     // the frame, then one pointer per input
};

// The tensor whose owned reference main left in an output.
inline at::Tensor owned_tensor(void* output) {
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, at::UndefinedTensorImpl>::reclaim(
      static_cast<c10::TensorImpl*>(output)));
}

}  // namespace hostjit
