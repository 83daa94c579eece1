// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/token_stream.h"
#include "ir/type.h"

namespace hostjit {

// Any text form of Type.
Type parse_type(TokenStream& tokens);

// A constant or a symbol: 8, n, "0".
Dim parse_dim(TokenStream& tokens);

// [8, n].
std::vector<Dim> parse_dims(TokenStream& tokens);

}  // namespace hostjit
