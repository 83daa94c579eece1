// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hostjit {

// What an op does to the memory of an operand.
enum class Access {
  kRead,
  kWrite,      // writes every element, reads none
  kReadWrite,  // reads, and writes some or all
  kFree,       // ends the life of the memory
  kMetadata,   // touches sizes and strides only, or makes an alias
};

// Where the memory of a tensor result comes from.
enum class ResultKind {
  kAllocated,  // new memory that hostjit owns and may place
  kConstant,   // read-only memory of the program
  kAlias,      // the memory of the kMetadata operands
  kOwned,      // memory that ATen owns: new, or shared with operands that the op names
  kScalar,     // no memory
};

constexpr bool reads(Access access) {
  return access == Access::kRead || access == Access::kReadWrite;
}
constexpr bool writes(Access access) {
  return access == Access::kWrite || access == Access::kReadWrite;
}

// Stands for the default of an attribute that the text must give; equals no value.
struct Required {
  friend bool operator==(const Required&, const auto&) { return false; }
};

// Facts about a kind of op that its fields don't say.
struct OpInfo {
  std::string_view name;
  std::string_view doc;
  // Observable beyond its operands and results: never removed, never reordered with its like.
  bool has_side_effect = false;
  // About the streams of the program's CUDA device: no work moves across it.
  bool orders_streams = false;
};

}  // namespace hostjit
