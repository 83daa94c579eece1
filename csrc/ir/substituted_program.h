// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/row_symbols.h"

namespace hostjit {

// What a program with symbols means for one row: the same program with numbers in their place. The
// numbers can be changed, which costs as much as writing them.
//
// Ops and values are in the order of the original. Strides of contiguous types are filled in. Has
// no kernels until a clone is made: their texts are long.
class SubstitutedProgram {
 public:
  explicit SubstitutedProgram(const Program& program);

  // `values` of all symbols. Throws Error for a type that is none then: a size is negative or too
  // large.
  void substitute(std::span<const int64_t> values);

  // Verifies ops as if they had been written with these numbers: that views stay in their memory
  // and shapes fit each other. Throws Error.
  void verify() const;

  // What a value of the original is here.
  Value* find(const Value* value) const { return values_.at(value->name()); }

  Program& program() { return program_; }
  const Program& program() const { return program_; }
  // With the kernels of `original`.
  Program clone(const Program& original) const;

 private:
  struct Place {
    Dim* dim;
    size_t symbol;
  };

  void add_type(TensorType& type, const RowSymbols& symbols);
  void add_dim(Dim& dim, const RowSymbols& symbols);

  Program program_;
  std::unordered_map<std::string, Value*> values_;  // by name, which a clone keeps
  std::vector<Place> places_;
  std::vector<TensorType*> types_;       // those with symbols
  std::vector<TensorType*> contiguous_;  // of them, those that had no strides
  std::vector<const Op*> ops_;           // that say what fits
};

}  // namespace hostjit
