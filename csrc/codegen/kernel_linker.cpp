// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel_linker.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <memory>
#include <optional>

#include "codegen/kernel_text.h"
#include "codegen/typed_kernel.h"
#include "support/check.h"

namespace hostjit {
namespace {

constexpr const char* kKernelAttribute = "hostjit-kernel";

// The text without the kernel's own name.
std::string content_of(const Kernel& kernel) {
  if (has_signature(kernel)) return concat("signature of ", kernel.name);
  if (is_external(kernel)) return external_symbol(kernel);
  const std::string name = "@" + kernel.name;
  const auto continues_name = [](char c) {
    return llvm::isAlnum(c) || c == '_' || c == '.' || c == '$' || c == '-';
  };
  std::string content;
  size_t copied = 0;
  for (size_t found; (found = kernel.text.find(name, copied)) != std::string::npos;) {
    const size_t end = found + name.size();
    const bool is_whole = end == kernel.text.size() || !continues_name(kernel.text[end]);
    content.append(kernel.text, copied, (is_whole ? found + 1 : end) - copied);
    copied = end;
  }
  return content.append(kernel.text, copied);
}

void check_signature(const LaunchKernel& launch, const llvm::Function& function) {
  const llvm::FunctionType& type = *function.getFunctionType();
  HOSTJIT_CHECK(type.getReturnType()->isVoidTy(), "launch_kernel '", launch.kernel,
                "': the kernel returns ", type_text(*type.getReturnType()), ", expected void");
  const size_t num_tensors = launch.inputs.size() + launch.in_out.size() + launch.outputs.size();
  const size_t num_scalars = launch.scalars.size();
  const size_t num_failures = launch.errors.empty() ? 0 : 1;
  const size_t expected = num_tensors + num_scalars + num_failures + (launch.grid.empty() ? 0 : 2);
  HOSTJIT_CHECK(type.getNumParams() == expected && !type.isVarArg(), "launch_kernel '",
                launch.kernel, "': the kernel has ", type.getNumParams(), " parameters, expected ",
                num_tensors, " pointers and ", num_scalars, " scalars",
                launch.errors.empty() ? "" : ", a pointer for failures",
                launch.grid.empty() ? "" : ", and the range of items");
  for (size_t i = 0; i < expected; ++i) {
    const llvm::Type* found = type.getParamType(static_cast<unsigned>(i));
    const size_t scalar = i - num_tensors;
    if (i < num_tensors || (num_failures != 0 && scalar == num_scalars)) {
      HOSTJIT_CHECK(found->isPointerTy() && found->getPointerAddressSpace() == 0, "launch_kernel '",
                    launch.kernel, "': parameter ", i, " has type ", type_text(*found),
                    ", expected ptr");
      continue;
    }
    const bool is_f64 =
        scalar < num_scalars && std::holds_alternative<F64Type>(launch.scalars[scalar]->type());
    HOSTJIT_CHECK(is_f64 ? found->isDoubleTy() : found->isIntegerTy(64), "launch_kernel '",
                  launch.kernel, "': parameter ", i, " has type ", type_text(*found), ", expected ",
                  is_f64 ? "double" : "i64");
  }
}

// Of a kernel that is `do { ... } while (++counter != count)` and nothing else.
struct ElementLoop {
  llvm::PHINode* counter = nullptr;
  llvm::ICmpInst* exit = nullptr;
};

// Whether all that is done with a pointer is to read or write its element `counter`.
bool is_used_at(const llvm::Argument& pointer, const llvm::PHINode* counter) {
  return llvm::all_of(pointer.users(), [&](const llvm::User* user) {
    const auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(user);
    if (!address || address->getNumIndices() != 1 || address->getOperand(1) != counter)
      return false;
    return llvm::all_of(address->users(), [&](const llvm::User* access) {
      if (llvm::isa<llvm::LoadInst>(access)) {
        return access->getType() == address->getSourceElementType();
      }
      const auto* store = llvm::dyn_cast<llvm::StoreInst>(access);
      return store && store->getPointerOperand() == address &&
             store->getValueOperand()->getType() == address->getSourceElementType();
    });
  });
}

std::optional<ElementLoop> find_element_loop(llvm::Function& kernel, unsigned operand,
                                             int64_t count) {
  if (kernel.size() != 3) return std::nullopt;
  llvm::BasicBlock& entry = kernel.getEntryBlock();
  llvm::BasicBlock* body = entry.getSingleSuccessor();
  if (!body || entry.size() != 1 || body == &entry) return std::nullopt;
  const llvm::Instruction* branch = body->getTerminator();
  if (branch->getNumSuccessors() != 2 || branch->getSuccessor(1) != body ||
      branch->getSuccessor(0)->size() != 1) {
    return std::nullopt;
  }
  auto* exit = llvm::dyn_cast<llvm::ICmpInst>(branch->getOperand(0));
  auto* counter = llvm::dyn_cast<llvm::PHINode>(&body->front());
  if (!exit || !counter || llvm::range_size(body->phis()) != 1 ||
      exit->getPredicate() != llvm::ICmpInst::ICMP_EQ) {
    return std::nullopt;
  }
  const auto is_number = [](const llvm::Value* value, int64_t number) {
    const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(value);
    return constant && constant->getBitWidth() == 64 && constant->getSExtValue() == number;
  };
  const auto* next = llvm::dyn_cast<llvm::BinaryOperator>(exit->getOperand(0));
  const bool counts = next && next->getOpcode() == llvm::Instruction::Add &&
                      next->getOperand(0) == counter && is_number(next->getOperand(1), 1) &&
                      counter->getIncomingValueForBlock(body) == next &&
                      is_number(counter->getIncomingValueForBlock(&entry), 0) &&
                      is_number(exit->getOperand(1), count) && exit->hasOneUse();
  if (!counts || !is_used_at(*kernel.getArg(operand), counter)) return std::nullopt;
  return ElementLoop{counter, exit};
}

}  // namespace

bool is_kernel(const llvm::Function& function) { return function.hasFnAttribute(kKernelAttribute); }

void mark_kernel(llvm::Function& function) {
  function.setDoesNotThrow();
  function.addFnAttr(kKernelAttribute);
  function.removeFnAttr(llvm::Attribute::AlwaysInline);
  function.addFnAttr(llvm::Attribute::NoInline);
}

bool is_external(const Kernel& kernel) {
  return kernel.language == KernelLanguage::kSharedLibrary ||
         kernel.language == KernelLanguage::kCFunction;
}

std::string external_symbol(const Kernel& kernel) {
  if (is_address(kernel.language)) return concat("c_function:", kernel.name);
  return concat(kernel.text, ":", kernel.entry);
}

KernelLinker::KernelLinker(const Program& program, llvm::Module& module)
    : program_(program), module_(module) {}

llvm::Function* KernelLinker::get(const LaunchKernel& launch) {
  llvm::Function*& function = functions_[launch.kernel];
  if (!function) {
    const auto kernel = program_.kernels().find(launch.kernel);
    HOSTJIT_CHECK(kernel != program_.kernels().end(), "launch_kernel '", launch.kernel,
                  "': the program has no such kernel");
    llvm::Function*& equal = by_content_[content_of(kernel->second)];
    if (!equal) equal = add(kernel->second, launch);
    function = equal;
  }
  const Kernel& kernel = program_.kernels().at(launch.kernel);
  if (!has_signature(kernel)) {
    check_signature(launch, *function);
  } else {
    HOSTJIT_CHECK(function->arg_size() == kernel.parameters.size() + (launch.grid.empty() ? 0 : 2),
                  "launch_kernel '", launch.kernel, "': is launched with and without a grid");
  }
  return function;
}

llvm::Function* KernelLinker::get_in_place(
    llvm::Function* kernel, const std::vector<std::pair<unsigned, unsigned>>& pairs) {
  std::string symbol = kernel->getName().str() + ".in_place";
  for (const auto& [output, input] : pairs) symbol += concat(".", output, ".", input);
  llvm::Function*& function = forms_[symbol];
  if (function) return function;
  llvm::ValueToValueMapTy values;
  function = llvm::CloneFunction(kernel, values);
  function->setName(symbol);
  for (const auto& [output, input] : pairs) {
    function->getArg(output)->replaceAllUsesWith(function->getArg(input));
    // What was said of memory that the kernel only reads.
    for (const auto said : {llvm::Attribute::ReadOnly, llvm::Attribute::NoAlias}) {
      function->removeParamAttr(input, said);
    }
  }
  return function;
}

llvm::Function* KernelLinker::get_range(llvm::Function* kernel, unsigned operand, int64_t count) {
  if (!find_element_loop(*kernel, operand, count)) return nullptr;
  const std::string symbol = concat(kernel->getName().str(), ".range.", operand);
  llvm::Function*& function = forms_[symbol];
  if (function) return function;

  llvm::Type* index = llvm::Type::getInt64Ty(module_.getContext());
  std::vector<llvm::Type*> parameters = kernel->getFunctionType()->params();
  parameters.insert(parameters.end(), 2, index);
  function = llvm::Function::Create(
      llvm::FunctionType::get(kernel->getReturnType(), parameters, /*isVarArg=*/false),
      llvm::GlobalValue::InternalLinkage, symbol, module_);
  llvm::ValueToValueMapTy values;
  for (llvm::Argument& argument : kernel->args()) {
    values[&argument] = function->getArg(argument.getArgNo());
  }
  llvm::SmallVector<llvm::ReturnInst*, 1> returns;
  llvm::CloneFunctionInto(function, kernel, values, llvm::CloneFunctionChangeType::LocalChangesOnly,
                          returns);
  const std::optional<ElementLoop> loop = find_element_loop(*function, operand, count);
  loop->counter->setIncomingValueForBlock(&function->getEntryBlock(),
                                          function->getArg(parameters.size() - 2));
  loop->exit->setOperand(1, function->getArg(parameters.size() - 1));
  return function;
}

void KernelLinker::drop_unused() {
  for (auto& [symbol, form] : forms_) {
    if (!form || !form->use_empty()) continue;
    form->eraseFromParent();
    form = nullptr;
  }
  for (auto& [content, kernel] : by_content_) {
    if (!kernel || !kernel->use_empty()) continue;
    kernel->eraseFromParent();
    kernel = nullptr;
  }
  functions_.clear();
}

llvm::Function* KernelLinker::add(const Kernel& kernel, const LaunchKernel& launch) {
  if (!has_signature(kernel)) return is_external(kernel) ? declare(kernel, launch) : link(kernel);
  const std::string symbol = program_.name() + ".kernel." + kernel.name;
  llvm::Function* function = link_typed_kernel(module_, kernel, symbol, !launch.grid.empty());
  mark_kernel(*function);
  return function;
}

llvm::Function* KernelLinker::declare(const Kernel& kernel, const LaunchKernel& launch) {
  llvm::LLVMContext& context = module_.getContext();
  const size_t num_tensors = launch.inputs.size() + launch.in_out.size() + launch.outputs.size();
  llvm::Type* pointer = llvm::PointerType::getUnqual(context);
  llvm::Type* index = llvm::Type::getInt64Ty(context);
  std::vector<llvm::Type*> parameters(num_tensors, pointer);
  for (const Value* scalar : launch.scalars) {
    const bool is_f64 = std::holds_alternative<F64Type>(scalar->type());
    parameters.push_back(is_f64 ? llvm::Type::getDoubleTy(context) : index);
  }
  if (!launch.errors.empty()) parameters.push_back(pointer);
  if (!launch.grid.empty()) parameters.insert(parameters.end(), 2, index);
  llvm::Function* function = llvm::Function::Create(
      llvm::FunctionType::get(llvm::Type::getVoidTy(context), parameters, /*isVarArg=*/false),
      llvm::GlobalValue::ExternalLinkage, external_symbol(kernel), module_);
  mark_kernel(*function);
  return function;
}

llvm::Function* KernelLinker::link(const Kernel& kernel) {
  std::unique_ptr<llvm::Module> part = parse_kernel(kernel, module_.getContext());
  llvm::Function* function = part->getFunction(kernel.name);
  HOSTJIT_CHECK(function && !function->isDeclaration(), "kernel '", kernel.name,
                "': the text does not define @", kernel.name);
  prepare_to_link(*part, module_, *function);
  function->setVisibility(llvm::GlobalValue::DefaultVisibility);
  function->setLinkage(llvm::GlobalValue::ExternalLinkage);
  const std::string symbol = program_.name() + ".kernel." + kernel.name;
  function->setName(symbol);
  HOSTJIT_CHECK(!llvm::Linker::linkModules(module_, std::move(part)), "kernel '", kernel.name,
                "': can't be linked with the kernels before it");
  function = module_.getFunction(symbol);
  HOSTJIT_ICHECK(function, "kernel '", kernel.name, "' was linked but is not there");
  function->setLinkage(llvm::GlobalValue::InternalLinkage);
  mark_kernel(*function);
  return function;
}

}  // namespace hostjit
