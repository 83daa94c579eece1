// SPDX-License-Identifier: Apache-2.0
#include "bindings/tensor_identities.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <bit>
#include <functional>

namespace hostjit {

TensorIdentities::TensorIdentities(const std::vector<PyObject*>& leaves, PyObject* outside)
    : same_as_(leaves.size()) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto found =
        std::find(leaves.begin(), leaves.begin() + static_cast<int64_t>(i), leaves[i]);
    same_as_[i] = static_cast<size_t>(found - leaves.begin());
  }
  relate(leaves.data(), outside);
}

void TensorIdentities::renew(const Leaves& leaves, PyObject* outside) {
  relate(leaves.data(), outside);
}

void TensorIdentities::relate(PyObject* const* leaves, PyObject* outside) {
  firsts_.clear();
  anchors_.clear();
  outside_.clear();
  others_.clear();
  if (outside == nullptr || outside == Py_None) return;
  for (size_t i = 0; i < same_as_.size(); ++i) {
    if (same_as_[i] == i) firsts_.push_back(i);
  }
  const PyRef sequence = PyRef::steal(PySequence_Fast(outside, "expected a sequence of tensors"));
  if (!sequence) throw pybind11::error_already_set();
  PyObject** const tensors = PySequence_Fast_ITEMS(sequence.get());
  outside_.assign(tensors, tensors + PySequence_Fast_GET_SIZE(sequence.get()));
  for (const size_t i : firsts_) {
    if (std::ranges::find(outside_, leaves[i]) != outside_.end()) {
      anchors_.push_back({i, leaves[i]});
      continue;
    }
    // The leaf has this type at every call.
    const size_t before = others_.size();
    std::ranges::copy_if(outside_, std::back_inserter(others_),
                         [&](PyObject* tensor) { return Py_TYPE(tensor) == Py_TYPE(leaves[i]); });
    if (others_.size() != before) anchors_.push_back({i, nullptr});
  }
  std::ranges::sort(others_, std::less<>());
  others_.erase(std::ranges::unique(others_).begin(), others_.end());
}

void TensorIdentities::put_in_place(const StandIn& stand_in) {
  for (auto* tensors : {&outside_, &others_}) {
    for (PyObject*& tensor : *tensors) tensor = stand_in(tensor);
  }
  std::ranges::sort(others_, std::less<>());
  for (Anchor& anchor : anchors_) {
    if (anchor.tensor != nullptr) anchor.tensor = stand_in(anchor.tensor);
  }
}

bool TensorIdentities::hold(const Leaves& leaves) const {
  for (size_t i = 0; i < same_as_.size(); ++i) {
    if (same_as_[i] != i && leaves[i] != leaves[same_as_[i]]) return false;
  }
  if (firsts_.size() > 1 && !are_distinct(leaves)) return false;
  return std::ranges::all_of(anchors_, [&](const Anchor& anchor) {
    PyObject* const leaf = leaves[anchor.leaf];
    if (anchor.tensor != nullptr) return leaf == anchor.tensor;
    return !std::binary_search(others_.begin(), others_.end(), leaf, std::less<>());
  });
}

bool TensorIdentities::are_distinct(const Leaves& leaves) const {
  constexpr size_t kFew = 8;
  if (firsts_.size() <= kFew) {
    for (size_t i = 1; i < firsts_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (leaves[firsts_[i]] == leaves[firsts_[j]]) return false;
      }
    }
    return true;
  }
  // A hash table with open addressing, half full at most.
  const size_t capacity = 2 * std::bit_ceil(firsts_.size());
  c10::SmallVector<PyObject*, 128> table(capacity, nullptr);
  for (const size_t i : firsts_) {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // Knuth's multiplicative hash
    const uint64_t hash = std::bit_cast<uint64_t>(leaves[i]) * kGolden;
    size_t place = (hash >> 32) & (capacity - 1);
    for (; table[place] != nullptr; place = (place + 1) & (capacity - 1)) {
      if (table[place] == leaves[i]) return false;
    }
    table[place] = leaves[i];
  }
  return true;
}

}  // namespace hostjit
