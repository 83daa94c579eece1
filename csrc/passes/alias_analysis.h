// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/program.h"

namespace hostjit {

// Bytes from the begin of a root on; all of them where a symbol decides.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();

  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
  bool contains(const ByteRange& other) const { return begin <= other.begin && other.end <= end; }
};

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

  // The part of each root of an operand that `op` may read or write. Operators of ATen go beyond
  // the elements of a view (as_strided_copy), to anything of the root.
  ByteRange bytes_used(const Op& op, const Value* operand) const;

  // True when both may refer to the same root. Two inputs have roots of their own, whose memory
  // may be one.
  bool share_root(const Value* a, const Value* b) const;

 private:
  void add_results(const Op& op);
  void add_bytes(const View& view);

  std::unordered_map<const Value*, std::vector<Value*>> roots_;
  std::unordered_map<const Value*, ByteRange> bytes_;  // of values whose begin is known
  std::unordered_set<const Value*> inputs_;
  std::unordered_set<const Value*> escaping_;
};

}  // namespace hostjit
