// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hostjit {

// Makes the process keep the memory that an operator frees, for its next call, where the operator
// allocates several blocks of about `bytes`: its result, and copies of operands in other layouts.
//
// malloc of glibc returns memory to the system when twice the largest block freed so far lies
// unused, which three blocks of one size do: each call pays for all their pages again. The limit is
// raised as any program raises it, by freeing one larger block that was never touched. Blocks of
// 32 MiB and more are always returned. Without effect on other allocators, and where the user
// fixed the limits of malloc.
void keep_freed_memory(int64_t bytes);

}  // namespace hostjit
