// SPDX-License-Identifier: Apache-2.0
#include "codegen/copy_plan.h"

namespace hostjit {
namespace {

// Above so many elements ATen's blocked and threaded copy is better than one loop nest, and above
// so many of a copy row by row.
constexpr int64_t kLargeStridedCopy = 1 << 14;
constexpr int64_t kLargeRowCopy = 1 << 18;
constexpr int64_t kShortRow = 8;

bool on_cpu(const TensorType& type) { return type.device.type == DeviceType::kCPU; }

// Both walk the last dim element by element.
bool goes_by_rows(const TensorType& source, const TensorType& out) {
  return out.rank() > 0 && source.dims == out.dims && out.sizes().back() >= kShortRow &&
         source.static_strides().back() == 1 && out.static_strides().back() == 1;
}

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
  const int64_t limit = goes_by_rows(source, out) ? kLargeRowCopy : kLargeStridedCopy;
  return out.num_elements() <= limit ? CopyKind::kLoops : CopyKind::kLibrary;
}

}  // namespace hostjit
