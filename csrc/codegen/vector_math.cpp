// SPDX-License-Identifier: Apache-2.0
#include "codegen/vector_math.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <cmath>
#include <map>

#include "support/check.h"

namespace hostjit {
namespace {

struct Entry {
  const char* name;
  const char* suffix;
  unsigned arity;
  void* libm_f32;
  void* libm_f64;
};

// One overload of a function of <cmath> as an address.
template <class T>
void* address(T (*function)(T)) {
  return reinterpret_cast<void*>(function);
}
template <class T>
void* address(T (*function)(T, T)) {
  return reinterpret_cast<void*>(function);
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
#define HOSTJIT_VECTOR_MATH_ENTRY(name, suffix, arity) \
  {#name, suffix, arity, address<float>(&::name##f), address<double>(&::name)},
      HOSTJIT_FOR_EACH_VECTOR_MATH_FUNCTION(HOSTJIT_VECTOR_MATH_ENTRY)
#undef HOSTJIT_VECTOR_MATH_ENTRY
  };
  return kEntries;
}

std::string scalar_name(const char* name, bool is_f64) {
  return concat("hostjit_", name, is_f64 ? "_f64" : "_f32");
}

llvm::Type* element_type(llvm::LLVMContext& context, bool is_f64) {
  return is_f64 ? llvm::Type::getDoubleTy(context) : llvm::Type::getFloatTy(context);
}

llvm::FunctionType* math_type(llvm::Type* type, unsigned arity) {
  const std::vector<llvm::Type*> parameters(arity, type);
  return llvm::FunctionType::get(type, parameters, /*isVarArg=*/false);
}

void set_math_attributes(llvm::Function& function) {
  function.setDoesNotThrow();
  function.setWillReturn();
  function.setDoesNotAccessMemory();
}

llvm::Function* declare_variant(llvm::Module& module, const VectorMathVariant& variant) {
  llvm::Type* vector =
      llvm::FixedVectorType::get(element_type(module.getContext(), variant.is_f64), variant.lanes);
  auto* function = llvm::cast<llvm::Function>(
      module.getOrInsertFunction(variant.symbol, math_type(vector, variant.arity)).getCallee());
  set_math_attributes(*function);
  return function;
}

// "_ZGV_LLVM_N16v_hostjit_exp_f32(Sleef_expf16_u10)": 16 lanes, unmasked, one vector argument.
std::string mapping(const VectorMathVariant& variant) {
  return concat("_ZGV_LLVM_N", variant.lanes, std::string(variant.arity, 'v'), "_",
                variant.scalar_name, "(", variant.symbol, ")");
}

}  // namespace

std::vector<VectorMathVariant> vector_math_candidates(const std::vector<VectorIsa>& isas) {
  std::vector<VectorMathVariant> candidates;
  for (const Entry& entry : entries()) {
    for (const bool is_f64 : {false, true}) {
      for (const VectorIsa& isa : isas) {
        const unsigned lanes = isa.bits / (is_f64 ? 64 : 32);
        const std::string plain =
            concat("Sleef_", entry.name, is_f64 ? "d" : "f", lanes, entry.suffix);
        const char* separator = *entry.suffix ? "" : "_";
        for (const std::string& symbol : {plain + separator + isa.sleef_suffix, plain}) {
          candidates.push_back(
              {scalar_name(entry.name, is_f64), symbol, lanes, entry.arity, is_f64});
        }
      }
    }
  }
  return candidates;
}

const std::vector<ScalarMathFunction>& scalar_math_functions() {
  static const std::vector<ScalarMathFunction> kFunctions = [] {
    std::vector<ScalarMathFunction> list;
    for (const Entry& entry : entries()) {
      list.push_back({scalar_name(entry.name, false), entry.libm_f32, entry.arity, false});
      list.push_back({scalar_name(entry.name, true), entry.libm_f64, entry.arity, true});
    }
    return list;
  }();
  return kFunctions;
}

bool is_vector_math(llvm::StringRef name) {
  for (const ScalarMathFunction& function : scalar_math_functions()) {
    if (name == function.name) return true;
  }
  return false;
}

void attach_vector_math(llvm::Module& module, const std::vector<VectorMathVariant>& variants) {
  std::map<std::string, std::string> mappings;
  std::vector<llvm::GlobalValue*> keep;
  for (const VectorMathVariant& variant : variants) {
    if (!module.getFunction(variant.scalar_name)) continue;
    std::string& text = mappings[variant.scalar_name];
    text += (text.empty() ? "" : ",") + mapping(variant);
    keep.push_back(declare_variant(module, variant));
  }
  for (const ScalarMathFunction& scalar : scalar_math_functions()) {
    llvm::Function* function = module.getFunction(scalar.name);
    if (!function) continue;
    set_math_attributes(*function);
    // The vectoriser reads the mapping at the call.
    for (llvm::User* user : function->users()) {
      auto* call = llvm::dyn_cast<llvm::CallInst>(user);
      if (!call || mappings[scalar.name].empty()) continue;
      call->addFnAttr(llvm::Attribute::get(module.getContext(), "vector-function-abi-variant",
                                           mappings[scalar.name]));
    }
  }
  if (!keep.empty()) llvm::appendToCompilerUsed(module, keep);
}

void define_scalar_math(llvm::Module& module, const std::vector<VectorMathVariant>& variants) {
  std::map<std::string, const VectorMathVariant*> narrowest;
  for (const VectorMathVariant& variant : variants) {
    const VectorMathVariant*& best = narrowest[variant.scalar_name];
    if (!best || variant.lanes < best->lanes) best = &variant;
  }
  for (const auto& [name, variant] : narrowest) {
    llvm::Function* function = module.getFunction(name);
    if (!function || !function->isDeclaration() || function->use_empty()) continue;
    llvm::IRBuilder<> builder(llvm::BasicBlock::Create(module.getContext(), "entry", function));
    std::vector<llvm::Value*> arguments;
    for (llvm::Argument& argument : function->args()) {
      arguments.push_back(builder.CreateVectorSplat(variant->lanes, &argument));
    }
    llvm::Value* result = builder.CreateCall(declare_variant(module, *variant), arguments);
    builder.CreateRet(builder.CreateExtractElement(result, uint64_t{0}));
    function->setLinkage(llvm::GlobalValue::InternalLinkage);
  }
}

}  // namespace hostjit
