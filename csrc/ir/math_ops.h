// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/access.h"
#include "ir/op_verifier.h"

namespace hostjit {

struct Matmul {
  static constexpr OpInfo kInfo{"matmul", "out[M, N] = lhs[M, K] @ rhs[K, N]."};
  Value* lhs = nullptr;
  Value* rhs = nullptr;
  Value* out = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("lhs", self.lhs, Access::kRead);
    visit.operand("rhs", self.rhs, Access::kRead);
    visit.operand("out", self.out, Access::kWrite);
  }
  void verify(const OpVerifier& verifier) const;
};

struct Linear {
  static constexpr OpInfo kInfo{"linear",
                                "out[..., N] = input[..., K] @ weight[N, K].T + bias[N]."};
  Value* input = nullptr;
  Value* weight = nullptr;
  Value* bias = nullptr;
  Value* out = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("input", self.input, Access::kRead);
    visit.operand("weight", self.weight, Access::kRead);
    visit.optional_operand("bias", self.bias, Access::kRead);
    visit.operand("out", self.out, Access::kWrite);
  }
  void verify(const OpVerifier& verifier) const;
};

struct Bmm {
  static constexpr OpInfo kInfo{"bmm", "out[B, M, N] = lhs[B, M, K] @ rhs[B, K, N]."};
  Value* lhs = nullptr;
  Value* rhs = nullptr;
  Value* out = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("lhs", self.lhs, Access::kRead);
    visit.operand("rhs", self.rhs, Access::kRead);
    visit.operand("out", self.out, Access::kWrite);
  }
  void verify(const OpVerifier& verifier) const;
};

// `bias` broadcasts to `out`; beta 0 ignores it, NaN included. The same holds for Baddbmm.
struct Addmm {
  static constexpr OpInfo kInfo{"addmm",
                                "out[M, N] = beta * bias + alpha * (lhs[M, K] @ rhs[K, N])."};
  Value* bias = nullptr;
  Value* lhs = nullptr;
  Value* rhs = nullptr;
  double beta = 1.0;
  double alpha = 1.0;
  Value* out = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("bias", self.bias, Access::kRead);
    visit.operand("lhs", self.lhs, Access::kRead);
    visit.operand("rhs", self.rhs, Access::kRead);
    visit.attribute("beta", self.beta, 1.0);
    visit.attribute("alpha", self.alpha, 1.0);
    visit.operand("out", self.out, Access::kWrite);
  }
  void verify(const OpVerifier& verifier) const;
};

struct Baddbmm {
  static constexpr OpInfo kInfo{
      "baddbmm", "out[B, M, N] = beta * bias + alpha * (lhs[B, M, K] @ rhs[B, K, N])."};
  Value* bias = nullptr;
  Value* lhs = nullptr;
  Value* rhs = nullptr;
  double beta = 1.0;
  double alpha = 1.0;
  Value* out = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("bias", self.bias, Access::kRead);
    visit.operand("lhs", self.lhs, Access::kRead);
    visit.operand("rhs", self.rhs, Access::kRead);
    visit.attribute("beta", self.beta, 1.0);
    visit.attribute("alpha", self.alpha, 1.0);
    visit.operand("out", self.out, Access::kWrite);
  }
  void verify(const OpVerifier& verifier) const;
};

}  // namespace hostjit
