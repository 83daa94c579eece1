// SPDX-License-Identifier: Apache-2.0
#include "codegen/copy_plan.h"

namespace hostjit {
namespace {

// Above so many elements ATen's blocked and threaded copy is better than one loop nest.
constexpr int64_t kLargeStridedCopy = 1 << 14;

bool on_cpu(const TensorType& type) { return type.device.type == DeviceType::kCPU; }

}  // namespace

CopyKind plan_copy(const TensorType& source, const Storage& source_storage, const TensorType& out,
                   const Storage& out_storage) {
  if (out.num_elements() == 0) return CopyKind::kNothing;
  if (!on_cpu(source) || !on_cpu(out) || source.dtype != out.dtype ||
      may_overlap(source_storage, out_storage)) {
    return CopyKind::kLibrary;
  }
  if (source.dims == out.dims && source.is_contiguous() && out.is_contiguous()) {
    return CopyKind::kBytes;
  }
  return out.num_elements() <= kLargeStridedCopy ? CopyKind::kLoops : CopyKind::kLibrary;
}

}  // namespace hostjit
