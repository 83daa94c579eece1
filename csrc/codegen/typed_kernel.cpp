// SPDX-License-Identifier: Apache-2.0
#include "codegen/typed_kernel.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/Linker/Linker.h>

#include <optional>

#include "codegen/kernel_linker.h"
#include "codegen/kernel_text.h"
#include "codegen/user_module.h"
#include "support/check.h"

namespace hostjit {
namespace {

constexpr ParameterType kTypes[] = {
#define HOSTJIT_PARAMETER_TYPE(enumerator, name, bytes) ParameterType::enumerator,
    HOSTJIT_FOR_EACH_PARAMETER_TYPE(HOSTJIT_PARAMETER_TYPE)
#undef HOSTJIT_PARAMETER_TYPE
};

std::vector<llvm::Type*> parameter_types(const Kernel& kernel, bool takes_range,
                                         llvm::LLVMContext& context) {
  std::vector<llvm::Type*> types;
  types.reserve(kernel.parameters.size() + 2);
  for (const ParameterType type : kernel.parameters) types.push_back(type_of(type, context));
  if (takes_range) types.insert(types.end(), 2, llvm::Type::getInt64Ty(context));
  return types;
}

// The user's function in `module`, by a name that neither a library nor another kernel has.
llvm::Function* link_text(llvm::Module& module, const Kernel& kernel) {
  std::unique_ptr<llvm::Module> part = parse_user_module(module, kernel);
  for (llvm::GlobalValue& value : part->global_values()) {
    if (value.isDeclaration() || value.getName().starts_with("llvm.")) continue;
    value.setName(concat(kernel.name, ".", value.getName().str()));
  }
  const std::string symbol = concat(kernel.name, ".", kernel.entry);
  llvm::Function* function = part->getFunction(symbol);
  prepare_to_link(*part, module, *function);
  // Not internal before it is linked: the linker takes what others see.
  function->setVisibility(llvm::GlobalValue::DefaultVisibility);
  function->setLinkage(llvm::GlobalValue::ExternalLinkage);
  HOSTJIT_CHECK(!llvm::Linker::linkModules(module, std::move(part)), "kernel '", kernel.name,
                "': can't be linked with the kernels before it");
  function = module.getFunction(symbol);
  HOSTJIT_ICHECK(function, "kernel '", kernel.name, "' was linked but is not there");
  function->setLinkage(llvm::GlobalValue::InternalLinkage);
  const bool stays = function->hasFnAttribute(llvm::Attribute::NoInline) ||
                     function->hasFnAttribute(llvm::Attribute::OptimizeNone);
  if (!stays) function->addFnAttr(llvm::Attribute::AlwaysInline);
  return function;
}

void check_parameters(const llvm::Function& function, const Kernel& kernel,
                      const std::vector<llvm::Type*>& expected) {
  HOSTJIT_CHECK(function.arg_size() == expected.size(), "kernel '", kernel.name, "': @",
                kernel.entry, " has ", function.arg_size(), " parameters, expected ",
                expected.size(),
                expected.size() > kernel.parameters.size() ? " with the range of items" : "");
  for (const llvm::Argument& argument : function.args()) {
    const llvm::Type& type = *expected[argument.getArgNo()];
    // A null pointer is a 0.
    const bool is_null = type.isIntegerTy(64) && argument.getType()->isPointerTy();
    HOSTJIT_CHECK(argument.getType() == &type || is_null, "kernel '", kernel.name, "': parameter ",
                  argument.getArgNo(), " of @", kernel.entry, " has type ",
                  type_text(*argument.getType()), ", expected ", type_text(type));
  }
}

void call(llvm::Function& caller, llvm::Function& function) {
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(caller.getContext(), "entry", &caller));
  std::vector<llvm::Value*> arguments;
  for (llvm::Argument& argument : caller.args()) {
    llvm::Type* type = function.getArg(argument.getArgNo())->getType();
    arguments.push_back(argument.getType() == type ? static_cast<llvm::Value*>(&argument)
                                                   : builder.CreateIntToPtr(&argument, type));
  }
  llvm::CallInst* result = builder.CreateCall(&function, arguments);
  result->setCallingConv(function.getCallingConv());
  for (const auto kind : {llvm::Attribute::ZExt, llvm::Attribute::SExt, llvm::Attribute::InReg}) {
    for (unsigned i = 0; i < function.arg_size(); ++i) {
      if (function.hasParamAttribute(i, kind)) result->addParamAttr(i, kind);
    }
  }
  builder.CreateRetVoid();
}

}  // namespace

llvm::Type* type_of(ParameterType type, llvm::LLVMContext& context) {
  switch (type) {
    case ParameterType::kPointer: return llvm::PointerType::getUnqual(context);
    case ParameterType::kI8: return llvm::Type::getInt8Ty(context);
    case ParameterType::kI16: return llvm::Type::getInt16Ty(context);
    case ParameterType::kI32: return llvm::Type::getInt32Ty(context);
    case ParameterType::kI64: return llvm::Type::getInt64Ty(context);
    case ParameterType::kF32: return llvm::Type::getFloatTy(context);
    case ParameterType::kF64: return llvm::Type::getDoubleTy(context);
  }
  HOSTJIT_ICHECK(false, "no such type of a parameter");
}

llvm::Function* link_typed_kernel(llvm::Module& module, const Kernel& kernel,
                                  const std::string& symbol, bool takes_range) {
  llvm::LLVMContext& context = module.getContext();
  const std::vector<llvm::Type*> types = parameter_types(kernel, takes_range, context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), types, /*isVarArg=*/false);
  llvm::Function* function = nullptr;
  if (is_external(kernel)) {
    function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage,
                                      external_symbol(kernel), module);
  } else {
    function = link_text(module, kernel);
    check_parameters(*function, kernel, types);
  }
  function->setDoesNotThrow();
  llvm::Function* caller =
      llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, symbol, module);
  caller->setUWTableKind(llvm::UWTableKind::Default);
  call(*caller, *function);
  return caller;
}

std::vector<ParameterType> parameters_in_text(const llvm::Module& module, const Kernel& kernel) {
  const std::unique_ptr<llvm::Module> part = parse_user_module(module, kernel);
  const llvm::Function* function = part->getFunction(kernel.entry);
  std::vector<ParameterType> found;
  for (const llvm::Argument& argument : function->args()) {
    std::optional<ParameterType> known;
    std::string names;
    for (const ParameterType type : kTypes) {
      if (argument.getType() == type_of(type, module.getContext())) known = type;
      names += concat(names.empty() ? "" : ", ", type_text(*type_of(type, module.getContext())));
    }
    HOSTJIT_CHECK(known, "kernel '", kernel.name, "': parameter ", argument.getArgNo(), " of @",
                  kernel.entry, " has type ", type_text(*argument.getType()),
                  ", expected one of: ", names);
    found.push_back(*known);
  }
  return found;
}

}  // namespace hostjit
