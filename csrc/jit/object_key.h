// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "ir/program.h"

namespace hostjit {

// A digest of all that decides the object file of a program. Objects hold no address of a process:
// whatever is outside of them has a name, which the linker resolves.
using ObjectKey = std::array<uint8_t, 32>;

// Digests the program without its source locations, its kernels, what HostTarget::description()
// says, and the builds of hostjit and LLVM. nullopt when those builds carry no id: nothing would
// tell their objects from those of the next build.
std::optional<ObjectKey> object_key(const Program& program, const std::string& target);

}  // namespace hostjit
