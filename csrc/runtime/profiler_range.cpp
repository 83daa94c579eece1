// SPDX-License-Identifier: Apache-2.0
#include "runtime/profiler_range.h"

#include <torch/csrc/profiler/stubs/base.h>

#include <string>

namespace hostjit {
namespace {

const torch::profiler::impl::ProfilerStubs& nvtx_functions() {
  return *torch::profiler::impl::cudaStubs();
}

}  // namespace

ProfilerRange::ProfilerRange(const char* label, bool nvtx)
    : nvtx_(nvtx && nvtx_functions().enabled()), record_(at::RecordScope::USER_SCOPE) {
  if (nvtx_) nvtx_functions().rangePush(label);
  // Owned: callbacks may keep the name longer than generated code lives.
  if (record_.isActive()) record_.before(std::string(label));
}

ProfilerRange::~ProfilerRange() {
  record_.end();
  if (nvtx_) nvtx_functions().rangePop();
}

}  // namespace hostjit
