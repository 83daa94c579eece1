// SPDX-License-Identifier: Apache-2.0
#include "runtime/null_cuda.h"

#include <atomic>

#include "runtime/null_cuda_state.h"
#include "runtime/null_cuda_torch.h"

namespace hostjit::cuda {
namespace {

std::atomic<NullCuda*> the_null_cuda{nullptr};

template <class T>
std::vector<T> take(std::vector<T>& from) {
  return std::exchange(from, {});
}

}  // namespace

NullCuda::NullCuda(int32_t num_devices) : state_(std::make_unique<State>(num_devices)) {}

NullCuda& NullCuda::install(int32_t num_devices) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (NullCuda* found = installed()) return *found;
  HOSTJIT_CHECK(num_devices > 0, "a null device needs at least one device, got ", num_devices);
  use_driver(null_driver());
  auto* made = new NullCuda(num_devices);
  the_null_cuda.store(made, std::memory_order_release);
  register_with_torch(*made);
  return *made;
}

NullCuda* NullCuda::installed() { return the_null_cuda.load(std::memory_order_acquire); }

std::string NullCuda::image(const std::string& kernel, const std::vector<size_t>& parameter_bytes) {
  std::string list;
  for (const size_t bytes : parameter_bytes) {
    list += concat(list.empty() ? "" : ", ", ".param .b8 p[", bytes, "]");
  }
  return concat(".visible .entry ", kernel, "(", list, ")\n{ ret; }\n");
}

void NullCuda::emulate(const std::string& kernel, Emulation run) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->emulations[kernel] = std::move(run);
}

void NullCuda::declare_reads(const std::string& kernel, std::vector<size_t> parameters) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->reads[kernel] = {parameters.begin(), parameters.end()};
}

void NullCuda::declare_extents(const std::string& kernel, std::vector<size_t> bytes) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->extents[kernel] = std::move(bytes);
}

void NullCuda::fail(const std::string& function, CUresult result, int64_t after, bool sticky) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->fail(function, result, after, sticky);
}

std::vector<std::string> NullCuda::take_log() {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  return take(state_->log);
}

std::vector<NullLaunch> NullCuda::take_launches() {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  return take(state_->launches);
}

std::vector<std::string> NullCuda::take_faults() {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  return take(state_->faults);
}

void NullCuda::set_captured(CUstream stream, bool captured) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  if (captured) {
    state_->captured.insert(stream);
  } else {
    state_->captured.erase(stream);
  }
}

int64_t NullCuda::bytes_allocated() const {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  return state_->bytes_allocated;
}

CUdeviceptr NullCuda::allocate(size_t bytes, int32_t device, CUstream stream) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  return state_->enter("allocate") == CUDA_SUCCESS ? state_->allocate(bytes, device, stream) : 0;
}

void NullCuda::free(CUdeviceptr memory) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->free(memory);
}

void NullCuda::note_use(CUdeviceptr memory, CUstream stream) {
  const std::lock_guard<std::recursive_mutex> lock(state_->mutex);
  state_->note_use(memory, stream);
}

CUstream NullCuda::current_stream(int32_t device) const { return state_->current_stream(device); }

void NullCuda::set_current_stream(int32_t device, CUstream stream) {
  state_->set_current_stream(device, stream);
}

int32_t NullCuda::current_device() const {
  const CUcontext context = state_->current_context();
  return context ? context->device : 0;
}

void NullCuda::set_current_device(int32_t device) {
  state_->set_current_context(state_->context(device));
}

}  // namespace hostjit::cuda
