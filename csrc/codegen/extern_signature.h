// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Type.h>

#include <type_traits>

#include "runtime/externs.h"
#include "support/check.h"

// The LLVM types of C++ functions, derived from their declarations.

namespace hostjit {

// One enumerator per extern, with its name.
// NOLINTBEGIN(readability-identifier-naming)
enum class Extern : uint8_t {
#define HOSTJIT_EXTERN_ENUMERATOR(name) name,
  HOSTJIT_FOR_EACH_EXTERN(HOSTJIT_EXTERN_ENUMERATOR)
#undef HOSTJIT_EXTERN_ENUMERATOR
};
// NOLINTEND(readability-identifier-naming)

template <class T>
llvm::Type* llvm_type(llvm::LLVMContext& context) {
  if constexpr (std::is_void_v<T>) {
    return llvm::Type::getVoidTy(context);
  } else if constexpr (std::is_same_v<T, bool>) {
    return llvm::Type::getInt1Ty(context);
  } else if constexpr (std::is_same_v<T, int32_t>) {
    return llvm::Type::getInt32Ty(context);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return llvm::Type::getInt64Ty(context);
  } else if constexpr (std::is_same_v<T, float>) {
    return llvm::Type::getFloatTy(context);
  } else if constexpr (std::is_same_v<T, double>) {
    return llvm::Type::getDoubleTy(context);
  } else {
    static_assert(std::is_pointer_v<T>, "no LLVM type for this C++ type");
    return llvm::PointerType::getUnqual(context);
  }
}

template <class F>
struct ExternSignature;

template <class Result, class... Arguments>
struct ExternSignature<Result (*)(Arguments...) noexcept> {
  static llvm::FunctionType* type(llvm::LLVMContext& context) {
    return llvm::FunctionType::get(llvm_type<Result>(context), {llvm_type<Arguments>(context)...},
                                   /*isVarArg=*/false);
  }
  // The C ABI passes a bool zero-extended.
  static void set_attributes(llvm::Function& function) {
    function.setDoesNotThrow();
    if (std::is_same_v<Result, bool>) function.addRetAttr(llvm::Attribute::ZExt);
    unsigned position = 0;
    ((std::is_same_v<Arguments, bool> ? function.addParamAttr(position, llvm::Attribute::ZExt)
                                      : void(),
      ++position),
     ...);
  }
};

// Declares the extern in `module`, once.
llvm::Function* declare_extern(llvm::Module& module, Extern name);

}  // namespace hostjit
