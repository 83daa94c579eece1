// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/token_stream.h"
#include "support/literal.h"

namespace hostjit {

bool parse_bool(TokenStream& tokens);
int64_t parse_integer(TokenStream& tokens);
// An integer is a real number too.
double parse_real(TokenStream& tokens);
// Any text form of Literal. `depth` counts the lists around it.
Literal parse_literal(TokenStream& tokens, int depth = 0);

}  // namespace hostjit
