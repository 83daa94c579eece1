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

// The index values of a program that depend on nothing but the sizes of its inputs. Their names are
// the symbols that types, offsets and grids may have. One combination of their values is a row:
// a call differs from another by its row and its data.
//
// Symbols are in the order of the ops that define them: `size`, `index_constant` and
// `index_binary` of init and body, not of regions inside.
class RowSymbols {
 public:
  // Where the size comes from that an input symbol is.
  struct Source {
    int64_t input = 0;
    int64_t dim = 0;
  };

  explicit RowSymbols(const Program& program);

  size_t size() const { return definitions_.size(); }
  const std::string& name(size_t symbol) const { return definitions_[symbol].name; }
  // nullopt when no value of that name is one.
  std::optional<size_t> find(const std::string& name) const;
  // The same; throws InternalError.
  size_t at(const std::string& name) const;

  // The symbols that are sizes of inputs themselves: `%n = size(source=%x, dim=0)` of an input %x
  // that has n there. The others follow from them.
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

  void add(Definition definition);
  void add(const Size& op);
  void add(const IndexBinary& op);

  std::vector<Definition> definitions_;
  std::vector<Source> sources_;
  std::unordered_map<std::string, size_t> numbers_;
};

}  // namespace hostjit
