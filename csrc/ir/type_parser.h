// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/token_stream.h"
#include "ir/type.h"

namespace hostjit {

// Any text form of Type.
Type parse_type(TokenStream& tokens);

}  // namespace hostjit
