// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ir/op.h"
#include "support/check.h"

namespace hostjit {

// What verify_program throws about one op of the program. `op` lives as long as the program.
class VerificationError : public Error {
 public:
  VerificationError(const std::string& message, const Op& op) : Error(message), op_(&op) {}
  const Op& op() const { return *op_; }

 private:
  const Op* op_;
};

// Runs `f`; an Error that it throws becomes a VerificationError about `op`.
template <class F>
void verify_about(const Op& op, F f) {
  try {
    f();
  } catch (const VerificationError&) {
    throw;  // about an op inside this one
  } catch (const Error& error) {
    throw VerificationError(error.what(), op);
  }
}

}  // namespace hostjit
