// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_kernels.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "codegen/kernel_linker.h"
#include "codegen/product_tiles.h"

namespace hostjit {
namespace {

// Multiply-adds up to which one thread of generated code is better than the library. On Zen 4 it
// does 200 GFLOPS where sgemm of libtorch_cpu does 90; above, a library's threads pay.
constexpr int64_t kSmallProduct = 1 << 21;
// The same for one row: it is bound by reading the matrix.
constexpr int64_t kSmallVectorProduct = 1 << 18;

bool is_small(const Product& product) {
  const int64_t most = product.m == 1 ? kSmallVectorProduct : kSmallProduct;
  return product.k > 0 && product.m * product.n * product.k <= most;
}

bool follows_vectors(const Product& product) {
  const bool writes_rows = product.out.column_stride == 1 || product.n == 1;
  const bool adds_rows = !product.addend || product.addend->column_stride <= 1 || product.n == 1;
  const bool reads_rows = product.rhs.column_stride == 1;
  const bool reads_columns = product.rhs.row_stride == 1 && product.lhs.column_stride == 1;
  return writes_rows && adds_rows && (reads_rows || reads_columns);
}

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
  if (!is_small(product) || !follows_vectors(product)) return nullptr;
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
  ProductTiles(builder, *function, product, vector_bits_).emit();
  builder.CreateRetVoid();
  return function;
}

}  // namespace hostjit
