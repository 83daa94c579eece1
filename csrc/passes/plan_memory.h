// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Gives every Allocate that may live in the frame's arena an offset into it: CPU memory that no
// output refers to. Buffers that are alive together share no byte, unless the op that
// ends the use of one and begins that of the other allows it (in_place_pairs); a buffer of init
// shares with none. Sets Program::arena: the bytes of the arena and the most bytes alive at once,
// the lower bound. The Deallocates of planned buffers stay, as markers of their lives; whatever
// has offset -1 has memory of its own. Plans anew when run again.
// Where streams run side by side, buffers share memory only if those of one stream have it one
// after another, with all use by others waited for.
//
// In a program with symbols it decides which buffers have the same memory, see ArenaPlan, and
// leaves buffers of init out. ArenaBlocks finds the offsets for a row.
void plan_memory(Program& program);

}  // namespace hostjit
