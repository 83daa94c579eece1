// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace hostjit {

struct Leaves;

// What is asked of tensors among the arguments besides what a TensorGuard sees, at each call:
//   "has_gradient", "no_gradient"  whether `.grad` is None
//   "unhooked"                     no hook for backward passes, nor a graph that they go on into
//   "unmarked"                     no attributes of its own
//   "unshifted"                    its first element is that of its storage
class LeafChecks {
 public:
  // Kinds and tensor leaves. Throws Error for an unknown kind, and for a leaf that a call with
  // `num_leaves` does not have.
  LeafChecks(const std::vector<std::pair<std::string, size_t>>& checks, size_t num_leaves);

  bool any() const { return !checks_.empty(); }
  bool hold(const Leaves& leaves) const;

 private:
  struct Check {
    bool (*holds)(PyObject* tensor);
    size_t leaf;
  };
  std::vector<Check> checks_;
};

}  // namespace hostjit
