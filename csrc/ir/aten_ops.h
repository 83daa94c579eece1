// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/access.h"
#include "ir/op_verifier.h"
#include "support/literal.h"

namespace hostjit {

// `target` is a schema name with its overload ("aten::sum.dim_IntList"). `arguments` has one
// literal per schema argument, in schema order, keyword-only ones included; $i in it is operand i
// of inputs followed by mutated. A result whose schema aliases operand i lists i in `aliases`.
// `absent` are the positions, in order, among what the operator returns that are no results here:
// tensors that it leaves undefined (gradients that a mask turns off), and numbers.
struct AtenCall {
  static constexpr OpInfo kInfo{"aten_call", "Calls any operator through PyTorch's dispatcher."};
  std::string target = {};
  std::vector<Value*> inputs = {};
  std::vector<Value*> mutated = {};
  std::vector<Literal> arguments = {};
  std::vector<int64_t> aliases = {};
  std::vector<int64_t> absent = {};
  // False for operators that draw random numbers or have effects of their own.
  bool pure = true;
  std::vector<Value*> results = {};

  static void fields(auto& self, auto& visit) {
    visit.attribute("target", self.target, Required{});
    visit.operands("inputs", self.inputs, Access::kRead);
    visit.operands("mutated", self.mutated, Access::kReadWrite);
    visit.attribute("arguments", self.arguments, std::vector<Literal>{});
    visit.attribute("aliases", self.aliases, std::vector<int64_t>{});
    visit.attribute("absent", self.absent, std::vector<int64_t>{});
    visit.attribute("pure", self.pure, true);
    visit.results("results", self.results, ResultKind::kOwned);
  }
  void verify(const OpVerifier& verifier) const;

  // One entry for each thing that the operator returns: a result, or null for an absent one.
  std::vector<const Value*> returned() const;
};

}  // namespace hostjit
