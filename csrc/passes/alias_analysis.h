// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/program.h"

namespace hostjit {

// Whose memory a tensor value may refer to. The roots are the values where memory enters a
// program: inputs, allocations, constants and results of ATen calls. A view has the roots of its
// source; an ATen result is a root itself and has those of the operands it may alias.
//
// Describes the program as it was when built: a pass that adds values builds it anew.
class AliasAnalysis {
 public:
  explicit AliasAnalysis(const Program& program);

  // In order of definition; empty for a scalar.
  const std::vector<Value*>& roots(const Value* value) const;

  bool is_input(const Value* root) const { return inputs_.contains(root); }

  // True when an output may refer to the memory of `root`.
  bool escapes(const Value* root) const { return escaping_.contains(root); }

  // True when both may refer to the same root.
  bool share_root(const Value* a, const Value* b) const;

  // Like share_root; and two inputs may share memory, whatever their names.
  bool may_alias(const Value* a, const Value* b) const;

 private:
  void add_results(const Op& op);

  std::unordered_map<const Value*, std::vector<Value*>> roots_;
  std::unordered_set<const Value*> inputs_;
  std::unordered_set<const Value*> escaping_;
};

}  // namespace hostjit
