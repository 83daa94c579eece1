// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_kernels.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "codegen/kernel_linker.h"
#include "codegen/product_tiles.h"

namespace hostjit {
namespace {

// Multiply-adds up to which generated code is better than the library with all its threads. One
// thread of it does 210 to 230 GFLOPS on Zen 5 where sgemm of libtorch_cpu does 90 to 105.
constexpr int64_t kSmallProduct = 1 << 21;
// The same for one row: it is bound by reading the matrix.
constexpr int64_t kSmallVectorProduct = 1 << 18;
// Multiply-adds up to which it is better than few threads of the library (measured up to 2^28).
constexpr int64_t kMediumProduct = 1 << 28;
// Rows of rhs that are further apart than this share cache sets, and tiles walk down its columns.
constexpr int64_t kFarApart = 2048;

int64_t multiply_adds(const Product& product) { return product.m * product.n * product.k; }

bool is_small(const Product& product) {
  return multiply_adds(product) <= (product.m == 1 ? kSmallVectorProduct : kSmallProduct);
}

bool is_medium(const Product& product) {
  const bool walks_columns = product.rhs.column_stride == 1 && product.n > 1;
  const bool is_near =
      !walks_columns || product.rhs.row_stride * size_in_bytes(product.dtype) <= kFarApart;
  return product.m > 1 && is_near && multiply_adds(product) <= kMediumProduct;
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

bool ProductKernels::loses_to_threads(const Product& product) { return !is_small(product); }

llvm::Function* ProductKernels::get(const Product& product) {
  if (product.k == 0 || !follows_vectors(product)) return nullptr;
  if (!is_small(product) && !is_medium(product)) return nullptr;
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
