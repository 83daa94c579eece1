// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/access.h"
#include "ir/op_verifier.h"
#include "ir/type.h"

namespace hostjit {

// Every view of torch (reshape, permute, expand, slice, select, squeeze, as_strided): the result
// type has the sizes and strides, `offset` is its first element relative to the source's. Of
// complex numbers it may have the real and imaginary parts, and of pairs of real numbers the
// complex ones.
struct View {
  static constexpr OpInfo kInfo{"view", "Another shape of the same memory; costs nothing."};
  Value* source = nullptr;
  Dim offset;  // elements of the result
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("source", self.source, Access::kMetadata);
    visit.attribute("offset", self.offset, Dim());
    visit.result("result", self.result, ResultKind::kAlias);
  }
  void verify(const OpVerifier& verifier) const;
};

// The index may change as the program runs, as that of a loop does. Of another dim than the first:
// of a view that has it in front.
struct Select {
  static constexpr OpInfo kInfo{
      "select", "What a tensor has at an index of its first dim, as a view; costs nothing."};
  Value* source = nullptr;
  Value* index = nullptr;  // fails where it is out of range; no negative one counts from the end
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("source", self.source, Access::kMetadata);
    visit.operand("index", self.index, Access::kRead);
    visit.result("result", self.result, ResultKind::kAlias);
  }
  void verify(const OpVerifier& verifier) const;

  static constexpr std::string_view kOutOfRange =
      "select: the index is out of range of the first dim of 'source'";
};

struct Size {
  static constexpr OpInfo kInfo{"size", "The size of one dim of a tensor."};
  Value* source = nullptr;
  int64_t dim = 0;
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("source", self.source, Access::kMetadata);
    visit.attribute("dim", self.dim, Required{});
    visit.result("result", self.result, ResultKind::kScalar);
  }
  void verify(const OpVerifier& verifier) const;
};

struct IndexConstant {
  static constexpr OpInfo kInfo{"index_constant", "An integer."};
  int64_t value = 0;
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.attribute("value", self.value, Required{});
    visit.result("result", self.result, ResultKind::kScalar);
  }
  void verify(const OpVerifier& verifier) const;
};

struct FloatConstant {
  static constexpr OpInfo kInfo{"float_constant", "A real number."};
  double value = 0;
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.attribute("value", self.value, Required{});
    visit.result("result", self.result, ResultKind::kScalar);
  }
  void verify(const OpVerifier& verifier) const;
};

// X(enumerator, text). Division and remainder round towards minus infinity, as in Python.
#define HOSTJIT_FOR_EACH_INDEX_OPERATION(X) \
  X(kAdd, "add")                            \
  X(kSub, "sub")                            \
  X(kMul, "mul")                            \
  X(kFloorDiv, "floordiv")                  \
  X(kCeilDiv, "ceildiv")                    \
  X(kMod, "mod")                            \
  X(kMin, "min")                            \
  X(kMax, "max")

enum class IndexOperation : uint8_t {
#define HOSTJIT_INDEX_ENUMERATOR(enumerator, text) enumerator,
  HOSTJIT_FOR_EACH_INDEX_OPERATION(HOSTJIT_INDEX_ENUMERATOR)
#undef HOSTJIT_INDEX_ENUMERATOR
};

std::string_view to_string(IndexOperation operation);
IndexOperation index_operation_from_string(std::string_view text);

// The value of one operation; throws Error on division by zero.
int64_t apply(IndexOperation operation, int64_t lhs, int64_t rhs);

struct IndexBinary {
  static constexpr OpInfo kInfo{"index_binary", "Integer arithmetic on sizes."};
  IndexOperation operation = IndexOperation::kAdd;
  Value* lhs = nullptr;
  Value* rhs = nullptr;
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.attribute("operation", self.operation, Required{});
    visit.operand("lhs", self.lhs, Access::kRead);
    visit.operand("rhs", self.rhs, Access::kRead);
    visit.result("result", self.result, ResultKind::kScalar);
  }
  void verify(const OpVerifier& verifier) const;
};

}  // namespace hostjit
