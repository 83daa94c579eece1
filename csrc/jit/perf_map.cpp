// SPDX-License-Identifier: Apache-2.0
#include "jit/perf_map.h"

#include <llvm/Object/ELFObjectFile.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "jit/llvm_check.h"

namespace hostjit {
namespace {

struct FunctionRange {
  std::string name;
  uint64_t offset;  // in the text section
  uint64_t size;
};

std::vector<FunctionRange> functions_of(const llvm::object::ObjectFile& object) {
  std::vector<FunctionRange> functions;
  for (const llvm::object::SymbolRef& symbol : object.symbols()) {
    const auto type = HOSTJIT_LLVM_CHECK(symbol.getType(), "reading a symbol");
    if (type != llvm::object::SymbolRef::ST_Function) continue;
    functions.push_back({HOSTJIT_LLVM_CHECK(symbol.getName(), "reading a symbol").str(),
                         HOSTJIT_LLVM_CHECK(symbol.getAddress(), "reading a symbol"),
                         llvm::object::ELFSymbolRef(symbol).getSize()});
  }
  return functions;
}

}  // namespace

std::set<std::string> global_functions(llvm::MemoryBufferRef object) {
  const auto file = HOSTJIT_LLVM_CHECK(llvm::object::ObjectFile::createELFObjectFile(object),
                                       "reading generated code");
  std::set<std::string> names;
  for (const llvm::object::ELFSymbolRef symbol : file->symbols()) {
    const auto type = HOSTJIT_LLVM_CHECK(symbol.getType(), "reading a symbol");
    const auto flags = HOSTJIT_LLVM_CHECK(symbol.getFlags(), "reading a symbol");
    const bool is_global = flags & llvm::object::SymbolRef::SF_Global;
    if (type != llvm::object::SymbolRef::ST_Function || !is_global) continue;
    names.insert(HOSTJIT_LLVM_CHECK(symbol.getName(), "reading a symbol").str());
  }
  return names;
}

void write_perf_map(llvm::MemoryBufferRef object, const std::map<std::string, void*>& addresses) {
  const auto file = HOSTJIT_LLVM_CHECK(llvm::object::ObjectFile::createELFObjectFile(object),
                                       "reading generated code");
  const std::vector<FunctionRange> functions = functions_of(*file);
  // All functions are in one section, so one address tells the others.
  uint64_t base = 0;
  for (const FunctionRange& function : functions) {
    const auto found = addresses.find(function.name);
    if (found == addresses.end()) continue;
    base = reinterpret_cast<uintptr_t>(found->second) - function.offset;
  }
  if (base == 0) return;
  std::FILE* map = std::fopen(concat("/tmp/perf-", getpid(), ".map").c_str(), "a");
  HOSTJIT_CHECK(map, "can't write /tmp/perf-", getpid(), ".map (knob perf)");
  for (const FunctionRange& function : functions) {
    std::fprintf(map, "%" PRIx64 " %" PRIx64 " %s\n", base + function.offset, function.size,
                 function.name.c_str());
  }
  std::fclose(map);
}

}  // namespace hostjit
