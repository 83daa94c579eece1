// SPDX-License-Identifier: Apache-2.0
#include "runtime/null_cuda_state.h"

#include <algorithm>

namespace hostjit::cuda {
namespace {

struct ThreadState {
  CUcontext context = nullptr;
  std::map<int32_t, CUstream> streams;
};

ThreadState& this_thread() {
  static thread_local ThreadState state;
  return state;
}

}  // namespace

NullCuda::State::State(int32_t num_devices) {
  for (int32_t device = 0; device < num_devices; ++device) {
    contexts_.push_back({device});
    default_streams_.push_back({-device, device, /*is_blocking=*/true, {}});
  }
}

void NullCuda::State::fault(std::string text) {
  note(concat("fault: ", text));
  faults.push_back(std::move(text));
}

CUresult NullCuda::State::enter(const char* function) {
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  const auto found = failures_.find(function);
  if (found == failures_.end() || found->second.after-- > 0) return CUDA_SUCCESS;
  const Failure failure = found->second;
  failures_.erase(found);
  if (failure.sticky) sticky_ = failure.result;
  return failure.result;
}

void NullCuda::State::fail(const std::string& function, CUresult result, int64_t after,
                           bool sticky) {
  sticky_ = CUDA_SUCCESS;
  failures_[function] = {result, after, sticky};
}

bool NullCuda::State::is_context(CUcontext context) const {
  return std::ranges::any_of(contexts_, [&](const CUctx_st& known) { return &known == context; });
}

CUcontext NullCuda::State::current_context() const { return this_thread().context; }

void NullCuda::State::set_current_context(CUcontext context) { this_thread().context = context; }

// PyTorch's side.

CUstream NullCuda::State::current_stream(int32_t device) {
  const auto& streams = this_thread().streams;
  const auto found = streams.find(device);
  return found == streams.end() ? nullptr : found->second;
}

void NullCuda::State::set_current_stream(int32_t device, CUstream stream) {
  this_thread().streams[device] = stream;
}

}  // namespace hostjit::cuda
