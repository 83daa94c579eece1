// SPDX-License-Identifier: Apache-2.0
#include "bindings/reused_outputs.h"

#include <utility>

namespace hostjit {
namespace {

const c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  return *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// By address: two storages may be over the same memory, as after a way through NumPy.
bool shares_memory(const at::Tensor& output, const at::Tensor& input) {
  const c10::Storage& storage = input.unsafeGetTensorImpl()->unsafe_storage();
  if (!storage) return true;  // nobody can tell
  const auto range = [](const c10::StorageImpl& impl) {
    const auto* begin = static_cast<const std::byte*>(impl.data());
    return std::pair(begin, begin + impl.nbytes());
  };
  const auto [begin, end] = range(storage_of(output));
  const auto [input_begin, input_end] = range(*storage.unsafeGetStorageImpl());
  return begin < input_end && input_begin < end;
}

}  // namespace

KeptTensors ReusedOutputs::take(uint64_t row, const at::Tensor* const* inputs, size_t num_inputs) {
  KeptTensors kept = std::exchange(tensors_, {});
  const std::vector<Seen> seen = std::exchange(seen_, {});
  const bool own_thread = thread_ == PyThread_get_thread_ident() && row_ == row;
  for (size_t i = 0; i < seen.size(); ++i) {
    at::Tensor& tensor = kept.entries()[i].tensor;
    bool usable = own_thread && seen[i].guard.matches(tensor) && tensor.storage_offset() == 0 &&
                  tensor.has_storage() && storage_of(tensor).data() == seen[i].data &&
                  storage_of(tensor).nbytes() == seen[i].storage_bytes;
    for (size_t k = 0; usable && k < num_inputs; ++k) {
      usable = !shares_memory(tensor, *inputs[k]);
    }
    if (!usable) tensor.reset();
  }
  return kept;
}

void ReusedOutputs::put(uint64_t row, KeptTensors tensors) {
  std::erase_if(tensors.entries(), [](const auto& entry) { return !entry.tensor.defined(); });
  seen_.clear();
  for (const KeptTensors::Entry& entry : tensors.entries()) {
    const c10::StorageImpl& storage = storage_of(entry.tensor);
    seen_.push_back({TensorGuard(entry.tensor), storage.data(), storage.nbytes()});
  }
  tensors_ = std::move(tensors);
  thread_ = PyThread_get_thread_ident();
  row_ = row;
}

}  // namespace hostjit
