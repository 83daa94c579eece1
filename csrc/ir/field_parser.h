// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/op.h"
#include "ir/token_stream.h"

namespace hostjit {

// Finds the value that a %name token means; throws at the token when there is none.
using ValueLookup = std::function<Value*(const Token&)>;

// Reads "(name=value, ...)" into the fields of `payload`, each by the kind that it was declared
// with. Throws at an unknown, repeated, missing or ill-kinded field.
void parse_fields(TokenStream& tokens, OpVariant& payload, const ValueLookup& lookup,
                  TextPosition op_position);

// Sets the results of `payload`. Throws when their number isn't that of the op.
void set_results(OpVariant& payload, const std::vector<Value*>& values, TextPosition op_position);

}  // namespace hostjit
