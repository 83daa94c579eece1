// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/program.h"

namespace hostjit {

// The index values of a program that depend on nothing but the sizes of its inputs, and on those
// of its index inputs that some size, offset or grid follows from. Their names are the symbols that
// types, offsets and grids may have. One combination of their values is a row: a call differs from
// another by its row, its data and its other scalars.
//
// Symbols are in the order of their definitions: inputs, then `size`, `index_constant` and
// `index_binary` of init and body, not of regions inside.
class RowSymbols {
 public:
  // Where an input symbol comes from: the size of a dim, or an index input itself.
  struct Source {
    static constexpr int64_t kItself = -1;
    int64_t input = 0;
    int64_t dim = kItself;
  };

  explicit RowSymbols(const Program& program);

  size_t size() const { return definitions_.size(); }
  const std::string& name(size_t symbol) const { return definitions_[symbol].name; }
  // nullopt when no value of that name is one.
  std::optional<size_t> find(const std::string& name) const;
  // The same; throws InternalError.
  size_t at(const std::string& name) const;

  // The symbols that are index inputs, or sizes of inputs: `%n = size(source=%x, dim=0)` of an
  // input %x that has n there. The others follow from them.
  size_t num_inputs() const { return sources_.size(); }
  const std::vector<Source>& sources() const { return sources_; }
  std::vector<std::string> input_names() const;
  bool is_input(size_t symbol) const { return definitions_[symbol].kind == Kind::kInput; }

  // The values of all symbols for those of the input symbols. Throws Error on division by zero.
  std::vector<int64_t> evaluate(std::span<const int64_t> inputs) const;

 private:
  enum class Kind : uint8_t { kInput, kConstant, kSame, kBinary };
  struct Definition {
    std::string name;
    Kind kind = Kind::kConstant;
    // The position among input symbols, the constant, the other symbol, or the left operand.
    int64_t value = 0;
    int64_t rhs = 0;
    IndexOperation operation = IndexOperation::kAdd;
  };

  void add_index_inputs(const Program& program);
  void add(Definition definition);
  void add(const Size& op);
  void add(const IndexBinary& op);

  std::vector<Definition> definitions_;
  std::vector<Source> sources_;
  std::unordered_map<std::string, size_t> numbers_;
};

}  // namespace hostjit
