// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Checks one op: required operands present, types known, its own verify().
// Throws Error "<op>: '<operand>' <found>, expected <expected>".
void verify_op(const Op& op);

// Checks every op; that a value is defined once and before its uses; that nothing is used after
// it was freed or freed twice; that outputs are defined and not freed; that every kernel named
// exists; that planned memory lies in the arena. Throws Error naming op and operand, as a
// VerificationError where it is about one op.
void verify_program(const Program& program);

}  // namespace hostjit
