// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>

namespace hostjit {

// Open as long as it lives: a scope of torch.profiler, as torch.profiler.record_function opens, and
// with `nvtx` a range of NVTX, by PyTorch's own functions, so that no library is linked or looked
// for; without CUDA there is none. Ranges end in the reverse order of their begin.
class ProfilerRange {
 public:
  ProfilerRange(const char* label, bool nvtx);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  bool nvtx_;
  at::RecordFunction record_;
};

}  // namespace hostjit
