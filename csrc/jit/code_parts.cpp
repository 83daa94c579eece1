// SPDX-License-Identifier: Apache-2.0
#include "jit/code_parts.h"

#include <llvm/IR/Instruction.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace hostjit {
namespace {

// Instructions before optimisation. A part costs what making its module takes, some 5 ms; LLVM
// needs 50 ms for so many.
constexpr unsigned kInstructionsPerPart = 1000;
constexpr size_t kMostParts = 8;
// Shorter kernels may be worth inlining.
constexpr unsigned kLeastInstructions = 60;

// Kernels and products. Functions of a kernel's text have no such name; they go where they are
// used.
bool is_own_unit(const llvm::Function& function) {
  return !function.isDeclaration() && function.hasLocalLinkage() &&
         function.hasFnAttribute(llvm::Attribute::NoInline) &&
         function.getName().starts_with(function.getParent()->getModuleIdentifier() + ".");
}

}  // namespace

CodeParts::CodeParts(const llvm::Module& module) {
  std::vector<std::pair<unsigned, std::string>> kernels;
  unsigned total = 0;
  unsigned rest = 0;
  for (const llvm::Function& function : module) {
    const unsigned length = function.getInstructionCount();
    total += length;
    if (is_own_unit(function) && length >= kLeastInstructions) {
      kernels.emplace_back(length, function.getName().str());
    } else {
      rest += length;
    }
  }
  size_ =
      std::clamp<size_t>(total / kInstructionsPerPart, 1, std::min(kMostParts, kernels.size() + 1));
  if (size_ == 1) return;
  // The longest first, each to the part that has least.
  std::vector<unsigned> lengths(size_, 0);
  lengths[0] = rest;
  std::ranges::sort(kernels, std::greater<>());
  for (const auto& [length, name] : kernels) {
    const auto least = std::ranges::min_element(lengths);
    *least += length;
    if (least != lengths.begin()) parts_[name] = least - lengths.begin();
  }
  for (const llvm::Function& function : module) {
    if (!is_own_unit(function)) continue;
    for (const llvm::User* user : function.users()) {
      const auto* call = llvm::dyn_cast<llvm::Instruction>(user);
      if (!call || part_of(*call->getFunction()) == part_of(function)) continue;
      shared_.insert(function.getName().str());
    }
  }
}

size_t CodeParts::part_of(const llvm::Function& function) const {
  const auto found = parts_.find(function.getName().str());
  return found == parts_.end() ? 0 : found->second;
}

void CodeParts::keep(llvm::Module& module, size_t index) const {
  if (size_ == 1) return;
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    const bool goes_anywhere = function.hasLocalLinkage() && !is_own_unit(function);
    if (goes_anywhere) continue;
    if (part_of(function) != index) {
      function.deleteBody();
    } else if (shared_.contains(function.getName().str())) {
      function.setLinkage(llvm::GlobalValue::ExternalLinkage);
    }
  }
  for (llvm::GlobalVariable& global : module.globals()) {
    if (index > 0 && global.hasExternalLinkage()) global.setInitializer(nullptr);
  }
  drop_unused(module);
}

void drop_unused(llvm::Module& module) {
  bool is_done = false;
  while (!is_done) {
    is_done = true;
    std::vector<llvm::GlobalObject*> objects;
    for (llvm::GlobalObject& object : module.global_objects()) objects.push_back(&object);
    for (llvm::GlobalObject* object : objects) {
      object->removeDeadConstantUsers();
      const bool may_go = object->hasLocalLinkage() || object->isDeclaration();
      if (!may_go || !object->use_empty()) continue;
      object->eraseFromParent();
      is_done = false;
    }
  }
}

}  // namespace hostjit
