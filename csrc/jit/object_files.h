// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/program.h"
#include "jit/host_target.h"
#include "jit/jit.h"

namespace hostjit {

// The code of a program: object files that are linked together.
using ObjectFiles = std::vector<std::string>;

// Compiles a program by LLVM, much code in parts on up to `num_threads` threads. How it is divided
// and what comes out depends on the program and the target only. Adds to emit, optimize and
// generate of `timings`, for each thread what it took. Throws as CompiledModule::compile does.
ObjectFiles compile_objects(const Program& program, HostTarget& target, bool time_nodes,
                            size_t num_threads, CompileTimings& timings);

// Object files as one text, for the cache.
std::string pack(const ObjectFiles& objects);
// Nullopt when the text is none of pack's.
std::optional<ObjectFiles> unpack(const std::string& text);

}  // namespace hostjit
