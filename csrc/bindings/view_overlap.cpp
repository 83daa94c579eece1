// SPDX-License-Identifier: Apache-2.0
#include "bindings/view_overlap.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <functional>
#include <span>

namespace hostjit {
namespace {

using Steps = c10::SmallVector<int64_t, 8>;

void add_strides(const StridedView& view, Steps& strides) {
  for (size_t dim = 0; dim < view.sizes.size(); ++dim) {
    if (view.sizes[dim] > 1 && view.strides[dim] != 0) strides.push_back(view.strides[dim]);
  }
}

// How many steps a view goes along each stride.
Steps steps_along(const StridedView& view, const Steps& strides) {
  Steps steps;
  for (const int64_t stride : strides) {
    int64_t count = 0;
    for (size_t dim = 0; dim < view.sizes.size(); ++dim) {
      if (view.strides[dim] == stride) count += view.sizes[dim] - 1;
    }
    steps.push_back(count);
  }
  return steps;
}

int64_t reach(std::span<const int64_t> strides, std::span<const int64_t> steps) {
  int64_t sum = 0;
  for (size_t i = 0; i < strides.size(); ++i) sum += strides[i] * steps[i];
  return sum;
}

// Whether `distance` may be some steps of the first less some of the second. Each goes up to so
// many times along each of the strides, the largest first.
bool may_meet(int64_t distance, std::span<const int64_t> strides, std::span<const int64_t> first,
              std::span<const int64_t> second) {
  if (strides.empty()) return distance == 0;
  const int64_t largest = strides[0];
  const auto rest = strides.subspan(1);
  const auto first_rest = first.subspan(1);
  const auto second_rest = second.subspan(1);
  if (reach(rest, first_rest) >= largest || reach(rest, second_rest) >= largest) {
    return true;  // rows that reach into each other: not worth knowing better
  }
  const int64_t below = distance / largest - (distance % largest < 0 ? 1 : 0);
  for (const int64_t count : {below, below + 1}) {
    if (-second[0] <= count && count <= first[0] &&
        may_meet(distance - count * largest, rest, first_rest, second_rest)) {
      return true;
    }
  }
  return false;
}

}  // namespace

StridedView StridedView::of(const at::Tensor& tensor) {
  return {tensor.sizes(), tensor.strides(), tensor.storage_offset(),
          static_cast<int64_t>(tensor.itemsize())};
}

bool StridedView::empty() const { return std::ranges::find(sizes, 0) != sizes.end(); }

int64_t StridedView::end() const {
  int64_t last = offset;
  for (size_t dim = 0; dim < sizes.size(); ++dim) last += strides[dim] * (sizes[dim] - 1);
  return empty() ? begin() : (last + 1) * itemsize;
}

bool may_overlap(const StridedView& a, const StridedView& b) {
  if (a.empty() || b.empty() || a.end() <= b.begin() || b.end() <= a.begin()) return false;
  if (a.itemsize != b.itemsize) return true;
  Steps strides;
  add_strides(a, strides);
  add_strides(b, strides);
  std::ranges::sort(strides, std::greater());
  strides.erase(std::ranges::unique(strides).begin(), strides.end());
  return may_meet(b.offset - a.offset, strides, steps_along(a, strides), steps_along(b, strides));
}

}  // namespace hostjit
