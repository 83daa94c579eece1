// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// What the widest accesses of a kernel need, and a line of the device's cache.
inline constexpr int64_t kDeviceArenaAlignment = 256;

// Gives every Allocate that may live in one of the frame's arenas an offset into it: memory that no
// output refers to, of the CPU and of the program's CUDA device. Buffers that are alive together
// share no byte, unless the op that ends the use of one and begins that of the other allows it
// (in_place_pairs); a buffer of init shares with none. Sets Program::arena: the bytes of the arena
// and the most bytes alive at once, the lower bound. The Deallocates of planned buffers stay, as
// markers of their lives; whatever has offset -1 has memory of its own. Plans anew when run again.
// Where streams run side by side, buffers share memory only if those of one stream have it one
// after another, with all use by others waited for.
//
// In a program with symbols it decides which buffers have the same memory, see ArenaPlan, and
// leaves buffers of init out. ArenaBlocks finds the offsets for a row.
void plan_memory(Program& program);

}  // namespace hostjit
