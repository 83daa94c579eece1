// SPDX-License-Identifier: Apache-2.0
#include "codegen/dispatcher.h"

namespace hostjit {
namespace {

constexpr uint64_t kArgumentBytes = 8;

// void(i64 begin, i64 end, ptr arguments): the kernel on the arguments of an array.
llvm::Function* range_function(llvm::Module& module, llvm::Function* kernel) {
  const std::string name = kernel->getName().str() + ".range";
  if (llvm::Function* function = module.getFunction(name)) return function;
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* index = llvm::Type::getInt64Ty(context);
  llvm::Type* pointer = llvm::PointerType::getUnqual(context);
  auto* function = llvm::Function::Create(
      llvm::FunctionType::get(llvm::Type::getVoidTy(context), {index, index, pointer},
                              /*isVarArg=*/false),
      llvm::GlobalValue::InternalLinkage, name, module);
  function->setDoesNotThrow();
  function->setUWTableKind(llvm::UWTableKind::Default);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "entry", function));
  std::vector<llvm::Value*> arguments;
  const unsigned num_arguments = kernel->getFunctionType()->getNumParams() - 2;
  for (unsigned i = 0; i < num_arguments; ++i) {
    llvm::Value* address = builder.CreateConstInBoundsGEP1_64(index, function->getArg(2), i);
    arguments.push_back(builder.CreateLoad(kernel->getArg(i)->getType(), address));
  }
  arguments.insert(arguments.end(), {function->getArg(0), function->getArg(1)});
  builder.CreateCall(kernel, arguments);
  builder.CreateRetVoid();
  return function;
}

}  // namespace

void Dispatcher::emit_parallel_call(llvm::Function* kernel, llvm::ArrayRef<llvm::Value*> arguments,
                                    llvm::Value* num_items, llvm::Value* grain) {
  llvm::Value* array = entry_builder_.CreateAlloca(
      llvm::ArrayType::get(builder_.getInt64Ty(), arguments.size()), nullptr, "arguments");
  for (size_t i = 0; i < arguments.size(); ++i) {
    builder_.CreateStore(arguments[i], address(array, static_cast<int64_t>(i * kArgumentBytes)));
  }
  call(Extern::hostjit_parallel_for, {num_items, grain, range_function(module_, kernel), array});
}

}  // namespace hostjit
