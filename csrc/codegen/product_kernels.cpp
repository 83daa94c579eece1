// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_kernels.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "codegen/kernel_linker.h"
#include "codegen/product_dots.h"
#include "codegen/product_packed.h"
#include "codegen/product_plan.h"
#include "codegen/product_rows.h"

namespace hostjit {
namespace {

std::string key_of(const Product& product) {
  const auto strides = [](const MatrixView& matrix) {
    return concat(".", matrix.row_stride, "_", matrix.column_stride);
  };
  std::string key =
      concat("product.", product.m, "x", product.k, "x", product.n, ".", product.dtype,
             strides(product.lhs), strides(product.rhs), strides(product.out));
  if (product.addend) key += strides(*product.addend);
  if (product.alpha != 1.0 || product.beta != 1.0) {
    key += concat(".", product.alpha, "_", product.beta);
  }
  return key;
}

}  // namespace

ProductKernels::ProductKernels(llvm::Module& module, unsigned vector_bits)
    : module_(module), vector_bits_(vector_bits) {}

llvm::Function* ProductKernels::get(const Product& product) {
  const std::optional<ProductPlan> plan = plan_product(product, vector_bits_);
  if (!plan) return nullptr;
  const std::string key = key_of(product);
  llvm::Function*& function = functions_[key];
  if (function) return function;
  llvm::LLVMContext& context = module_.getContext();
  llvm::Type* pointer = llvm::PointerType::getUnqual(context);
  function = llvm::Function::Create(
      llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer, pointer, pointer, pointer},
                              /*isVarArg=*/false),
      llvm::GlobalValue::InternalLinkage, module_.getModuleIdentifier() + "." + key, module_);
  function->addParamAttr(2, llvm::Attribute::NoAlias);
  mark_kernel(*function);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "entry", function));
  switch (plan->form) {
    case ProductForm::kRows:
      ProductRows(builder, *function, product, vector_bits_, plan->tile).emit();
      break;
    case ProductForm::kDots: ProductDots(builder, *function, product, vector_bits_).emit(); break;
    case ProductForm::kPacked:
      ProductPacked(builder, *function, product, vector_bits_, plan->tile).emit();
      break;
  }
  builder.CreateRetVoid();
  return function;
}

}  // namespace hostjit
