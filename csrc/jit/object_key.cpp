// SPDX-License-Identifier: Apache-2.0
#include "jit/object_key.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/Support/BLAKE3.h>
#include <llvm/TargetParser/Host.h>

#include "ir/printer.h"
#include "jit/build_id.h"

namespace hostjit {
namespace {

// Sizes keep the parts apart.
void add(llvm::BLAKE3& digest, const std::string& part) {
  digest.update(std::to_string(part.size()) + ":");
  digest.update(part);
}

}  // namespace

std::optional<ObjectKey> object_key(const Program& program, const std::string& target) {
  // LLVM may be a library of its own, which is updated without hostjit.
  static const std::string kOwnBuild = build_id(reinterpret_cast<const void*>(&object_key));
  static const std::string kLlvmBuild =
      build_id(reinterpret_cast<const void*>(&llvm::sys::getHostCPUName));
  if (kOwnBuild.empty() || kLlvmBuild.empty()) return std::nullopt;
  llvm::BLAKE3 digest;
  add(digest, kOwnBuild);
  add(digest, LLVM_VERSION_STRING);
  add(digest, kLlvmBuild);
  add(digest, target);
  add(digest, portable_text(program));
  return digest.final<std::tuple_size_v<ObjectKey>>();
}

}  // namespace hostjit
