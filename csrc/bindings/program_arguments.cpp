// SPDX-License-Identifier: Apache-2.0
#include "bindings/program_arguments.h"

#include "support/check.h"

namespace hostjit {
namespace {

// As TensorImpl::data(), without its virtual calls where the tensor has a storage.
const void* first_element(const c10::TensorImpl* impl) {
  const c10::Storage& storage = impl->unsafe_storage();
  if (!storage) [[unlikely]]
    return impl->data();
  const auto* base = static_cast<const char*>(storage.unsafeGetStorageImpl()->data());
  const int64_t offset = impl->storage_offset();
  if (offset == 0 || base == nullptr) return base;
  return base + offset * static_cast<int64_t>(impl->itemsize());
}

}  // namespace

ProgramArguments::ProgramArguments(const Program& program, Frame* frame) : program_(program) {
  const size_t num_inputs = program.inputs().size();
  // Used by position, within the capacity: inputs_ points into the others.
  tensors_.reserve(num_inputs);
  scalars_.reserve(num_inputs);
  inputs_.reserve(num_inputs + 1);
  inputs_.data()[0] = frame;
}

void ProgramArguments::add_tensor(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const void* data = first_element(impl);
  HOSTJIT_CHECK(data != nullptr || impl->numel() == 0, "input %",
                program_.inputs()[num_added_]->name(), " of sizes ", impl->sizes(),
                " has no memory: its storage was resized");
  // Field by field: a struct on the stack would be copied by loads wider than its stores.
  TensorArg& argument = tensors_.data()[num_added_];
  argument.data = const_cast<void*>(data);
  argument.sizes = impl->sizes().data();
  argument.strides = impl->strides().data();
  argument.tensor = const_cast<at::Tensor*>(&tensor);
  inputs_.data()[++num_added_] = &argument;
}

void ProgramArguments::add_index(int64_t value) {
  scalars_.data()[num_added_] = value;
  inputs_.data()[num_added_ + 1] = &scalars_.data()[num_added_];
  ++num_added_;
}

}  // namespace hostjit
