// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ir/access.h"
#include "ir/op_verifier.h"
#include "support/literal.h"

namespace hostjit {

// `offset` is set by plan_memory: bytes into the frame's arena, or -1 for memory of its own. In a
// program with symbols it is the number of a block of the arena (ArenaPlan).
struct Allocate {
  static constexpr OpInfo kInfo{"allocate", "Reserves uninitialised memory for the result."};
  int64_t offset = -1;
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.attribute("offset", self.offset, int64_t{-1});
    visit.result("result", self.result, ResultKind::kAllocated);
  }
  void verify(const OpVerifier& verifier) const;
};

// An input with one is donated: calls may give up the tensor, and the op releases their reference.
struct Deallocate {
  static constexpr OpInfo kInfo{"deallocate",
                                "Ends the life of memory that an op allocated, or of an input."};
  Value* buffer = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("buffer", self.buffer, Access::kFree);
  }
  void verify(const OpVerifier& verifier) const;
};

struct Copy {
  static constexpr OpInfo kInfo{
      "copy", "Writes source into out: strides may differ, sizes broadcast, dtypes convert."};
  Value* source = nullptr;
  Value* out = nullptr;
  // Autograd does not learn of the write: the version of the tensor stays.
  bool hidden_from_autograd = false;

  static void fields(auto& self, auto& visit) {
    visit.operand("source", self.source, Access::kRead);
    visit.operand("out", self.out, Access::kWrite);
    visit.attribute("hidden_from_autograd", self.hidden_from_autograd, false);
  }
  void verify(const OpVerifier& verifier) const;
};

struct Fill {
  static constexpr OpInfo kInfo{"fill", "Writes one scalar into every element of out."};
  Literal value = {};
  Value* out = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.attribute("value", self.value, Required{});
    visit.operand("out", self.out, Access::kWrite);
  }
  void verify(const OpVerifier& verifier) const;
};

struct Constant {
  static constexpr OpInfo kInfo{"constant",
                                "A read-only contiguous tensor of literal values, row-major."};
  std::vector<Literal> values = {};
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.attribute("values", self.values, std::vector<Literal>{});
    visit.result("result", self.result, ResultKind::kConstant);
  }
  void verify(const OpVerifier& verifier) const;
};

// An f64 of a floating-point number, an index of an integer or a bool.
struct Item {
  static constexpr OpInfo kInfo{"item", "The number that a tensor without dims on the CPU holds."};
  Value* source = nullptr;
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("source", self.source, Access::kRead);
    visit.result("result", self.result, ResultKind::kScalar);
  }
  void verify(const OpVerifier& verifier) const;
};

}  // namespace hostjit
