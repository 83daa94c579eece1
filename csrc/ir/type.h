// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "support/device.h"
#include "support/dtype.h"

namespace hostjit {

// One size, stride or offset: a constant, or a symbol, which is the name of an index value of the
// program that depends on nothing but sizes of its inputs and index inputs (RowSymbols).
struct Dim {
  int64_t value = 0;
  std::string symbol;

  Dim() = default;
  Dim(int64_t constant) : value(constant) {}  // NOLINT: a number is a Dim wherever one is meant
  static Dim make_symbol(std::string name);

  bool is_constant() const { return symbol.empty(); }
  friend bool operator==(const Dim&, const Dim&) = default;
};

// "8", "n", or "\"0\"" for a symbol that would not read as a word.
std::string to_string(const Dim& dim);

// A strided tensor. `strides` counts elements, as in torch. Contiguous strides are filled in by
// `make` when all dims are constant; with symbolic dims they are empty, also where `make` got the
// constants that they are.
struct TensorType {
  DType dtype = DType::kF32;
  std::vector<Dim> dims;
  std::vector<Dim> strides;
  Device device;

  static TensorType make(DType dtype, std::vector<Dim> dims,
                         std::optional<std::vector<Dim>> strides = std::nullopt,
                         Device device = {});

  // Throws Error unless sizes and strides are of one rank, not negative, and small enough that
  // no size in bytes overflows. `make` has done so.
  void check() const;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  bool is_static() const;
  // Of a type with symbols: for all their values. False where that can't be told.
  bool is_contiguous() const;

  // The following need a static type and throw InternalError otherwise.
  std::vector<int64_t> sizes() const;
  std::vector<int64_t> static_strides() const;
  int64_t num_elements() const;
  // Bytes from the first to one past the last element; 0 for an empty tensor.
  int64_t extent_in_bytes() const;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes);

struct IndexType {  // int64_t
  friend bool operator==(const IndexType&, const IndexType&) = default;
};
struct F64Type {
  friend bool operator==(const F64Type&, const F64Type&) = default;
};
struct BoolType {
  friend bool operator==(const BoolType&, const BoolType&) = default;
};
struct StreamType {
  friend bool operator==(const StreamType&, const StreamType&) = default;
};
struct EventType {
  friend bool operator==(const EventType&, const EventType&) = default;
};

using Type = std::variant<TensorType, IndexType, F64Type, BoolType, StreamType, EventType>;

// "tensor<f32, [4, 8], strides=[1, 4], cpu>", "index", "f64", "bool", "stream", "event".
std::string to_string(const Type& type);

// "[4, 8]".
std::string to_string(const std::vector<Dim>& dims);
std::string to_string(const std::vector<int64_t>& values);

}  // namespace hostjit
