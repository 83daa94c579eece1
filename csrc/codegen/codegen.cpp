// SPDX-License-Identifier: Apache-2.0
#include "codegen/codegen.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/dispatcher.h"
#include "codegen/kernel_linker.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

void finish_module(llvm::Module& module, const CodegenOptions& options) {
  attach_vector_math(module, options.vector_math);
  std::string problems;
  llvm::raw_string_ostream out(problems);
  HOSTJIT_ICHECK(!llvm::verifyModule(module, &out), "generated code is malformed: ", problems);
}

// void @<name>(ptr arguments): loads what arguments[i] is or points at, and calls the kernel.
std::string emit_packed(llvm::Module& module, const std::string& name, llvm::Function* kernel) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* pointer = llvm::PointerType::getUnqual(context);
  auto* function = llvm::Function::Create(
      llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer}, /*isVarArg=*/false),
      llvm::GlobalValue::ExternalLinkage, name, module);
  function->setDoesNotThrow();
  function->setUWTableKind(llvm::UWTableKind::Default);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "entry", function));
  std::vector<llvm::Value*> arguments;
  for (llvm::Argument& parameter : kernel->args()) {
    llvm::Value* address =
        builder.CreateConstInBoundsGEP1_64(pointer, function->getArg(0), parameter.getArgNo());
    llvm::Value* argument = builder.CreateLoad(pointer, address);
    const bool is_scalar = !parameter.getType()->isPointerTy();
    if (is_scalar) argument = builder.CreateLoad(parameter.getType(), argument);
    arguments.push_back(argument);
  }
  builder.CreateCall(kernel, arguments);
  builder.CreateRetVoid();
  return function->getName().str();
}

}  // namespace

std::unique_ptr<llvm::Module> make_module(const std::string& name, llvm::LLVMContext& context,
                                          const CodegenOptions& options) {
  auto module = std::make_unique<llvm::Module>(name, context);
#if LLVM_VERSION_MAJOR >= 21
  module->setTargetTriple(options.triple);
#else
  module->setTargetTriple(options.triple.str());
#endif
  module->setDataLayout(options.data_layout);
  return module;
}

CodeInterface code_interface(const Program& program) {
  return {StoragePlan(program).layout(), program.name() + ".main",
          program.init().empty() ? "" : program.name() + ".init", program.name() + ".node_times"};
}

std::unique_ptr<llvm::Module> generate(const Program& program, llvm::LLVMContext& context,
                                       const CodegenOptions& options, bool time_nodes) {
  const StoragePlan storage(program);
  std::unique_ptr<llvm::Module> module = make_module(program.name(), context, options);
  KernelLinker kernels(program, *module);
  ProductKernels products(*module, options.vector_bits, options.has_pair_dots);
  Dispatcher dispatcher(program, storage, kernels, products, *module);
  const CodeInterface interface = code_interface(program);
  if (time_nodes) dispatcher.time_nodes(interface.times_symbol);
  dispatcher.emit_main(interface.main_symbol);
  if (!interface.init_symbol.empty()) dispatcher.emit_init(interface.init_symbol);
  dispatcher.finish();
  finish_module(*module, options);
  return module;
}

PackedKernelsResult generate_packed_kernels(const Program& program, llvm::LLVMContext& context,
                                            const CodegenOptions& options) {
  PackedKernelsResult result;
  result.module = make_module(program.name() + ".kernels", context, options);
  KernelLinker kernels(program, *result.module);
  for (const Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) {
      const auto* launch = op.get_if<LaunchKernel>();
      if (!launch || is_cuda(program.kernels().at(launch->kernel).language)) return;
      llvm::Function* kernel = kernels.get(*launch);
      if (result.symbols.contains(launch->kernel)) return;
      result.symbols[launch->kernel] =
          emit_packed(*result.module, program.name() + "." + launch->kernel + ".packed", kernel);
    });
  }
  finish_module(*result.module, options);
  return result;
}

}  // namespace hostjit
