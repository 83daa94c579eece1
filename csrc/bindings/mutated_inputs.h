// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace hostjit {

// The inputs that a program writes. It was compiled for memory that no other input reaches.
class MutatedInputs {
 public:
  // Throws Error for an index that is no input's.
  MutatedInputs(std::vector<int64_t> indices, size_t num_inputs);

  bool empty() const { return indices_.empty(); }
  size_t num_inputs() const { return is_mutated_.size(); }
  const std::vector<int64_t>& indices() const { return indices_; }

  // Whether another input may have an element of one that is written.
  bool are_reached_twice(std::span<const at::Tensor* const> inputs) const;

 private:
  bool is_reached(size_t written, std::span<const at::Tensor* const> inputs) const;
  bool any_ranges_overlap(std::span<const at::Tensor* const> inputs) const;

  std::vector<int64_t> indices_;
  std::vector<bool> is_mutated_;  // per input
};

}  // namespace hostjit
