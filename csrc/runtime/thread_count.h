// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace hostjit {

// As many threads as PyTorch would use for one operator now. Includes no header of PyTorch.
size_t thread_count();

}  // namespace hostjit
