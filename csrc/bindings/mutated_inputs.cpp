// SPDX-License-Identifier: Apache-2.0
#include "bindings/mutated_inputs.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

#include "bindings/view_overlap.h"
#include "support/check.h"

namespace hostjit {
namespace {

// Null for what is not handed on yet, too: that is in memory of its own.
const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl()
                                                  : nullptr;
}

}  // namespace

MutatedInputs::MutatedInputs(std::vector<int64_t> indices, size_t num_inputs)
    : indices_(std::move(indices)), is_mutated_(num_inputs) {
  for (const int64_t i : indices_) {
    HOSTJIT_CHECK(i >= 0 && i < static_cast<int64_t>(num_inputs), "specialization: mutated input ",
                  i, " is out of range");
    is_mutated_[i] = true;
  }
}

bool MutatedInputs::are_reached_twice(std::span<const at::Tensor* const> inputs) const {
  // Pairs, if few; optimizers write hundreds.
  constexpr size_t kFew = 4;
  if (indices_.size() > kFew) return any_ranges_overlap(inputs);
  return std::ranges::any_of(indices_, [&](int64_t i) { return is_reached(i, inputs); });
}

bool MutatedInputs::is_reached(size_t written, std::span<const at::Tensor* const> inputs) const {
  const at::Tensor& tensor = *inputs[written];
  const c10::StorageImpl* storage = storage_of(tensor);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i == written || storage_of(*inputs[i]) != storage) continue;
    if (!storage || may_overlap(StridedView::of(tensor), StridedView::of(*inputs[i]))) return true;
  }
  return false;
}

bool MutatedInputs::any_ranges_overlap(std::span<const at::Tensor* const> inputs) const {
  struct Range {
    const c10::StorageImpl* storage;
    StridedView view;
    bool is_written;
  };
  c10::SmallVector<Range, 64> ranges;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const c10::StorageImpl* storage = storage_of(*inputs[i]);
    if (storage) ranges.push_back({storage, StridedView::of(*inputs[i]), is_mutated_[i]});
  }
  std::ranges::sort(ranges, std::less(), [](const Range& range) {
    return std::pair(range.storage, range.view.begin());
  });
  for (auto a = ranges.begin(); a != ranges.end(); ++a) {
    const int64_t end = a->view.end();
    for (auto b = a + 1; b != ranges.end() && b->storage == a->storage && b->view.begin() < end;
         ++b) {
      if ((a->is_written || b->is_written) && may_overlap(a->view, b->view)) return true;
    }
  }
  return false;
}

}  // namespace hostjit
