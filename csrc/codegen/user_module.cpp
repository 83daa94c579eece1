// SPDX-License-Identifier: Apache-2.0
#include "codegen/user_module.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include "codegen/kernel_text.h"
#include "support/check.h"

namespace hostjit {
namespace {

void check_machine(const llvm::Module& module, const llvm::Module& part, const Kernel& kernel) {
  // Copies, because LLVM before 21 has texts.
  const llvm::Triple own(module.getTargetTriple());  // NOLINT(performance-unnecessary-copy-*)
  const llvm::Triple given(part.getTargetTriple());  // NOLINT(performance-unnecessary-copy-*)
  const bool is_arch =
      given.getArch() == llvm::Triple::UnknownArch || given.getArch() == own.getArch();
  const bool is_os = given.getOS() == llvm::Triple::UnknownOS || given.getOS() == own.getOS();
  HOSTJIT_CHECK(is_arch && is_os, "kernel '", kernel.name, "': its target triple is ", given.str(),
                ", expected that of this machine, ", own.str(), ", or none");
  const llvm::DataLayout& expected = module.getDataLayout();
  const llvm::DataLayout& layout = part.getDataLayout();
  const bool fits = layout.getStringRepresentation().empty() ||
                    (layout.isLittleEndian() == expected.isLittleEndian() &&
                     layout.getPointerSize() == expected.getPointerSize());
  HOSTJIT_CHECK(fits, "kernel '", kernel.name, "': its target datalayout is ",
                layout.getStringRepresentation(), ", expected that of this machine, ",
                expected.getStringRepresentation(), ", or none");
}

// A CPU without the instructions that a text asks for can't run it.
void check_features(const llvm::Function& function, const Kernel& kernel) {
  static const llvm::StringMap<bool> kFeatures = llvm::sys::getHostCPUFeatures();
  const llvm::StringRef asked = function.getFnAttribute("target-features").getValueAsString();
  for (const llvm::StringRef& feature : llvm::split(asked, ',')) {
    if (!feature.starts_with("+")) continue;
    const auto found = kFeatures.find(feature.drop_front());
    HOSTJIT_CHECK(found == kFeatures.end() || found->second, "kernel '", kernel.name, "': @",
                  function.getName().str(), " needs ", feature.drop_front().str(),
                  ", which this CPU does not have");
  }
}

// LLVM ends the process when it has no instruction for an intrinsic. Compilers say of a function
// which instructions it needs.
void check_intrinsics(const llvm::Module& module, const llvm::Module& part, const Kernel& kernel) {
  const llvm::Triple own(module.getTargetTriple());  // NOLINT(performance-unnecessary-copy-*)
  const std::string prefix =
      concat("llvm.", llvm::Triple::getArchTypePrefix(own.getArch()).str(), ".");
  for (const llvm::Function& function : part) {
    if (!function.isIntrinsic()) continue;
    const std::string name = function.getName().str();
    HOSTJIT_CHECK(function.getIntrinsicID() != llvm::Intrinsic::not_intrinsic, "kernel '",
                  kernel.name, "': calls @", name, ", which LLVM does not have");
    if (!function.isTargetIntrinsic()) continue;
    HOSTJIT_CHECK(name.starts_with(prefix), "kernel '", kernel.name, "': calls @", name,
                  ", which this machine does not have");
    for (const llvm::User* user : function.users()) {
      const auto* call = llvm::dyn_cast<llvm::CallBase>(user);
      const llvm::Function* caller = call ? call->getFunction() : nullptr;
      HOSTJIT_CHECK(caller && caller->hasFnAttribute("target-features"), "kernel '", kernel.name,
                    "': calls @", name, " where no \"target-features\" say what that needs");
    }
  }
}

// Texts are compiled without an assembler.
void check_assembly(const llvm::Module& part, const Kernel& kernel) {
  bool has_assembly = !part.getModuleInlineAsm().empty();
  for (const llvm::Function& function : part) {
    for (const llvm::Instruction& instruction : llvm::instructions(function)) {
      const auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction);
      has_assembly = has_assembly || (call && call->isInlineAsm());
    }
  }
  HOSTJIT_CHECK(!has_assembly, "kernel '", kernel.name,
                "': has assembly in it; intrinsics give the instructions of a machine");
}

// Code is compiled, dropped and divided as programs are: what it wrote to a variable is lost.
void check_state(const llvm::Module& part, const Kernel& kernel) {
  for (const llvm::GlobalVariable& global : part.globals()) {
    const llvm::StringRef name = global.getName();
    const bool is_annotation = name == "llvm.used" || name == "llvm.compiler.used";
    HOSTJIT_CHECK(global.isConstant() || is_annotation, "kernel '", kernel.name, "': defines @",
                  name.str(), ", which is not constant; a kernel keeps nothing between its calls");
    HOSTJIT_CHECK(!global.isThreadLocal(), "kernel '", kernel.name, "': @", name.str(),
                  " is thread_local, expected a plain constant");
  }
  HOSTJIT_CHECK(part.ifunc_empty(), "kernel '", kernel.name, "': defines an ifunc");
}

void check_entry(const llvm::Module& part, const Kernel& kernel) {
  const llvm::Function* entry = part.getFunction(kernel.entry);
  HOSTJIT_CHECK(entry && !entry->isDeclaration(), "kernel '", kernel.name,
                "': the text does not define @", kernel.entry);
  HOSTJIT_CHECK(entry->getReturnType()->isVoidTy(), "kernel '", kernel.name, "': @", kernel.entry,
                " returns ", type_text(*entry->getReturnType()), ", expected void");
  HOSTJIT_CHECK(!entry->isVarArg(), "kernel '", kernel.name, "': @", kernel.entry,
                " takes any number of arguments");
  for (const llvm::Argument& argument : entry->args()) {
    const bool is_special = argument.hasPassPointeeByValueCopyAttr() ||
                            argument.hasStructRetAttr() || argument.hasNestAttr() ||
                            argument.hasSwiftErrorAttr() || argument.hasSwiftSelfAttr();
    HOSTJIT_CHECK(!is_special, "kernel '", kernel.name, "': parameter ", argument.getArgNo(),
                  " of @", kernel.entry, " is passed in a special way, such as byval or sret");
  }
}

void forget_compiler(llvm::Module& part) {
  llvm::StripDebugInfo(part);
  while (!part.named_metadata_empty()) part.eraseNamedMetadata(&*part.named_metadata_begin());
  for (llvm::Function& function : part) {
    for (const char* name : {"target-cpu", "tune-cpu", "target-features", "probe-stack"}) {
      function.removeFnAttr(name);
    }
    // Their guards call a function of the C library.
    for (const auto kind : {llvm::Attribute::StackProtect, llvm::Attribute::StackProtectStrong,
                            llvm::Attribute::StackProtectReq}) {
      function.removeFnAttr(kind);
    }
  }
}

}  // namespace

std::unique_ptr<llvm::Module> parse_user_module(const llvm::Module& module, const Kernel& kernel) {
  std::unique_ptr<llvm::Module> part = parse_kernel(kernel, module.getContext());
  check_machine(module, *part, kernel);
  check_assembly(*part, kernel);
  check_state(*part, kernel);
  for (const llvm::Function& function : *part) check_features(function, kernel);
  check_intrinsics(module, *part, kernel);
  check_entry(*part, kernel);
  forget_compiler(*part);
  return part;
}

}  // namespace hostjit
