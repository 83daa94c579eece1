// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include "support/literal.h"

namespace hostjit {

// Raised by the conversions below: what was expected and found, without the op and argument, which
// the caller adds.
class LiteralMismatch : public std::exception {};

// The literal as a value of the schema type `type` (Argument::real_type, which tells ScalarType and
// SymInt from int). Converts as torch does when Python calls an operator: bool to int, int to
// float, a number to a tensor, one element to a list of known length `list_size`.
// Throws LiteralMismatch. Operand literals are the caller's.
c10::IValue to_ivalue(const Literal& literal, const c10::Type& type,
                      std::optional<int32_t> list_size = std::nullopt);

// A number that is known at the call only, likewise. An int64_t serves as a bool.
c10::IValue scalar_to_ivalue(const at::Scalar& value, const c10::Type& type);

// An empty list whose elements unboxed kernels read as `element`.
c10::impl::GenericList make_list(const c10::TypePtr& element);

// The type without its optional layers.
const c10::Type& without_optional(const c10::Type& type);

}  // namespace hostjit
