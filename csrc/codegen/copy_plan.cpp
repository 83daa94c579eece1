// SPDX-License-Identifier: Apache-2.0
#include "codegen/copy_plan.h"

#include <algorithm>

namespace hostjit {
namespace {

// Above so many elements ATen's blocked and threaded copy is better than one loop nest, and above
// so many of a copy row by row.
constexpr int64_t kLargeStridedCopy = 1 << 14;
constexpr int64_t kLargeRowCopy = 1 << 18;
constexpr int64_t kShortRow = 8;

bool on_cpu(const TensorType& type) { return type.device.type == DeviceType::kCPU; }

bool has_neighbours_in_rows(const TensorType& type) {
  return type.strides.empty() || type.strides.back() == Dim(1);
}

// Both walk the last dim element by element. A symbolic row is taken for a long one.
bool goes_by_rows(const TensorType& source, const TensorType& out) {
  if (out.rank() == 0 || source.dims != out.dims) return false;
  const Dim& row = out.dims.back();
  return (!row.is_constant() || row.value >= kShortRow) && has_neighbours_in_rows(source) &&
         has_neighbours_in_rows(out);
}

bool is_empty(const TensorType& type) {
  return std::ranges::find(type.dims, Dim(0)) != type.dims.end();
}

}  // namespace

CopyKind plan_copy(const TensorType& source, const Storage& source_storage, const TensorType& out,
                   const Storage& out_storage) {
  if (is_empty(out)) return CopyKind::kNothing;
  if (!on_cpu(source) || !on_cpu(out) || source.dtype != out.dtype ||
      may_overlap(source_storage, out_storage)) {
    return CopyKind::kLibrary;
  }
  if (source.dims == out.dims && source.is_contiguous() && out.is_contiguous()) {
    return CopyKind::kBytes;
  }
  if (!source.is_static() || !out.is_static()) return CopyKind::kBySize;
  return out.num_elements() <= most_elements_of_loops(source, out) ? CopyKind::kLoops
                                                                   : CopyKind::kLibrary;
}

int64_t most_elements_of_loops(const TensorType& source, const TensorType& out) {
  return goes_by_rows(source, out) ? kLargeRowCopy : kLargeStridedCopy;
}

}  // namespace hostjit
