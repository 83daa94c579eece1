// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "support/dtype.h"
#include "support/literal.h"

namespace hostjit {

// The bytes of one element of `dtype` with the value of `literal` (bool, integer, real or complex),
// rounded to nearest even.
std::vector<std::byte> literal_bytes(const Literal& literal, DType dtype);

}  // namespace hostjit
