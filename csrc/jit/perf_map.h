// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/Support/MemoryBufferRef.h>

#include <map>
#include <set>
#include <string>

namespace hostjit {

// The names of the functions of an object file that others may call.
std::set<std::string> global_functions(llvm::MemoryBufferRef object);

// Appends the functions of a loaded object to /tmp/perf-<pid>.map, where `perf report` looks for
// names. `addresses` has where at least one of its functions is.
void write_perf_map(llvm::MemoryBufferRef object, const std::map<std::string, void*>& addresses);

}  // namespace hostjit
