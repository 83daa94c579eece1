// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_kernels.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include "codegen/flush_denormals.h"
#include "codegen/kernel_linker.h"
#include "codegen/loop_nest.h"
#include "codegen/pair_dots.h"
#include "codegen/product_dots.h"
#include "codegen/product_packed.h"
#include "codegen/product_plan.h"
#include "codegen/product_rows.h"

namespace hostjit {
namespace {

std::string key_of(const Product& product, const ProductPlan& plan) {
  const auto strides = [](const MatrixView& matrix) {
    return concat(".", matrix.row_stride, "_", matrix.column_stride);
  };
  std::string key = concat("product.", product.has_open_rows ? "any" : std::to_string(product.m),
                           "x", product.k, "x", product.n, ".", product.dtype, strides(product.lhs),
                           strides(product.rhs), strides(product.out));
  if (product.is_in_pairs()) key += ".pairs";
  if (product.flushes_denormals) key += ".flushed";
  if (product.addend) key += strides(*product.addend);
  if (product.alpha != 1.0 || product.beta != 1.0) {
    key += concat(".", product.alpha, "_", product.beta);
  }
  // Blocks are done as the whole product would be.
  const ProductTile& tile = plan.tile;
  return concat(key, ".", static_cast<int>(plan.form), "_", tile.rows, "_", tile.vectors, "_",
                tile.depth, "_", tile.panels);
}

llvm::Function* make_function(llvm::Module& module, const std::string& key,
                              llvm::ArrayRef<llvm::Type*> parameters) {
  auto* function = llvm::Function::Create(
      llvm::FunctionType::get(llvm::Type::getVoidTy(module.getContext()), parameters,
                              /*isVarArg=*/false),
      llvm::GlobalValue::InternalLinkage, module.getModuleIdentifier() + "." + key, module);
  function->setDoesNotThrow();
  function->addFnAttr(llvm::Attribute::NoInline);
  return function;
}

}  // namespace

ProductKernels::ProductKernels(llvm::Module& module, unsigned vector_bits, bool has_pair_dots)
    : module_(module), vector_bits_(vector_bits), has_pair_dots_(has_pair_dots) {}

Product ProductKernels::in_factors(const Product& product) const {
  if (!has_pair_dots_ || !is_in_pairs_for_eager(product)) return product;
  if (const std::optional<Product> pairs = in_pairs(product)) return *pairs;
  Product result = product;
  result.flushes_denormals = true;
  return result;
}

llvm::Function* ProductKernels::get(const Product& elements) {
  const Product product = in_factors(elements);
  const std::optional<ProductPlan> plan = plan_product(product, vector_bits_);
  if (!plan) return nullptr;
  llvm::Function* function = get(product, *plan);
  // Inlined, it could flush what other arithmetic of main computes.
  if (!product.flushes_denormals) mark_kernel(*function);
  return function;
}

llvm::Function* ProductKernels::get(const Product& elements, const ProductEpilogue& epilogue) {
  const Product product = in_factors(elements);
  const std::optional<ProductPlan> plan = plan_product(product, vector_bits_);
  const bool is_row = product.batch == 1 && product.m == 1 && product.out.column_stride == 1 &&
                      product.n >= 2 * lanes_of_sums(product, vector_bits_);
  if (!plan || plan->form != ProductForm::kDots || !is_row || product.flushes_denormals ||
      divide_product(product, *plan, vector_bits_)) {
    return nullptr;
  }
  const std::string key = concat(key_of(product, *plan), ".", epilogue.function->getName().str());
  llvm::Function*& function = functions_[key];
  if (function) return function;
  std::vector<llvm::Type*> parameters(4, llvm::PointerType::getUnqual(module_.getContext()));
  const auto arguments = epilogue.function->getFunctionType()->params().drop_back(2);
  parameters.insert(parameters.end(), arguments.begin(), arguments.end());
  function = make_function(module_, key, parameters);
  function->addParamAttr(2, llvm::Attribute::NoAlias);
  emit_with_epilogue(*function, product, epilogue);
  mark_kernel(*function);
  return function;
}

void ProductKernels::emit_with_epilogue(llvm::Function& function, const Product& product,
                                        const ProductEpilogue& epilogue) const {
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(module_.getContext(), "entry", &function));
  std::vector<llvm::Value*> arguments;
  for (unsigned i = 4; i < function.arg_size(); ++i) arguments.push_back(function.getArg(i));
  arguments[epilogue.operand] = function.getArg(2);
  arguments.resize(arguments.size() + 2);
  std::vector<llvm::CallInst*> calls;
  ProductDots(builder, function, product, vector_bits_)
      .emit_row([&](llvm::Value* begin, llvm::Value* end) {
        *std::prev(arguments.end(), 2) = begin;
        arguments.back() = end;
        calls.push_back(builder.CreateCall(epilogue.function, arguments));
      });
  builder.CreateRetVoid();
  for (llvm::CallInst* call : calls) {
    llvm::InlineFunctionInfo info;
    const bool is_inlined = llvm::InlineFunction(*call, info).isSuccess();
    HOSTJIT_ICHECK(is_inlined, "an epilogue can't be inlined");
  }
}

std::optional<ProductKernels::Shared> ProductKernels::get_shared(const Product& elements) {
  const Product product = in_factors(elements);
  const std::optional<ProductPlan> plan = plan_product(product, vector_bits_);
  if (!plan) return std::nullopt;
  const std::optional<ProductBlocks> blocks = divide_product(product, *plan, vector_bits_);
  if (!blocks) return std::nullopt;
  std::string key = key_of(product, *plan) + ".blocks";
  if (product.batch > 1) {
    key += concat(".", product.batch, "_", product.lhs.batch_stride, "_", product.rhs.batch_stride,
                  "_", product.out.batch_stride);
    if (product.addend) key += concat("_", product.addend->batch_stride);
  }
  llvm::Function*& function = functions_[key];
  if (!function) {
    llvm::LLVMContext& context = module_.getContext();
    llvm::Type* pointer = llvm::PointerType::getUnqual(context);
    llvm::Type* index = llvm::Type::getInt64Ty(context);
    std::vector<llvm::Type*> parameters(4, pointer);
    parameters.insert(parameters.end(), product.has_open_rows ? 3 : 2, index);
    function = make_function(module_, key, parameters);
    emit_blocks(*function, product, *plan, *blocks);
    mark_kernel(*function);
  }
  return Shared{.function = function, .blocks = *blocks};
}

llvm::Function* ProductKernels::get(const Product& product, const ProductPlan& plan) {
  const std::string key = key_of(product, plan);
  llvm::Function*& function = functions_[key];
  if (function) return function;
  llvm::LLVMContext& context = module_.getContext();
  llvm::Type* pointer = llvm::PointerType::getUnqual(context);
  std::vector<llvm::Type*> parameters(4, pointer);
  if (product.has_open_rows) parameters.push_back(llvm::Type::getInt64Ty(context));
  function = make_function(module_, key, parameters);
  function->addParamAttr(2, llvm::Attribute::NoAlias);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "entry", function));
  const auto emit = [&] { emit_form(builder, *function, product, plan); };
  if (product.flushes_denormals) {
    emit_flushing_denormals(builder, emit);
  } else {
    emit();
  }
  builder.CreateRetVoid();
  return function;
}

llvm::Function* ProductKernels::get_open(Product product) {
  product.has_open_rows = true;
  const std::optional<ProductPlan> plan = plan_product(product, vector_bits_);
  if (!plan) return nullptr;
  llvm::Function* function = get(product, *plan);
  mark_kernel(*function);
  return function;
}

ProductKernels::SharedRows ProductKernels::get_open_shared(Product product) {
  product.has_open_rows = true;
  const std::optional<ProductPlan> plan = plan_product(product, vector_bits_);
  HOSTJIT_ICHECK(plan.has_value(), "a product that no generated code does");
  // Where threads begin, a tile does: results do not depend on their number.
  SharedRows shared{nullptr, plan->form == ProductForm::kDots ? 4 : plan->tile.rows, 1};
  shared.grain = (rows_per_thread(product, *plan, vector_bits_) + shared.tile - 1) / shared.tile;
  llvm::Function*& function = functions_[key_of(product, *plan) + ".tiles"];
  if (!function) {
    llvm::LLVMContext& context = module_.getContext();
    llvm::Type* pointer = llvm::PointerType::getUnqual(context);
    llvm::Type* index = llvm::Type::getInt64Ty(context);
    function = make_function(module_, key_of(product, *plan) + ".tiles",
                             {pointer, pointer, pointer, pointer, index, index, index});
    emit_row_tiles(*function, product, get(product, *plan), shared.tile);
  }
  shared.function = function;
  return shared;
}

void ProductKernels::emit_row_tiles(llvm::Function& function, const Product& product,
                                    llvm::Function* kernel, int64_t tile) {
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(module_.getContext(), "entry", &function));
  llvm::Value* size = builder.getInt64(tile);
  llvm::Value* first = builder.CreateNUWMul(function.getArg(5), size);
  llvm::Value* end = builder.CreateBinaryIntrinsic(
      llvm::Intrinsic::umin, builder.CreateNUWMul(function.getArg(6), size), function.getArg(4));
  const int64_t bytes = size_in_bytes(product.dtype);
  const auto rows_of = [&](unsigned position, const MatrixView& view) {
    return element_address(builder, function.getArg(position), {first}, {view.row_stride}, bytes);
  };
  builder.CreateCall(kernel, {rows_of(0, product.lhs), function.getArg(1), rows_of(2, product.out),
                              product.addend ? rows_of(3, *product.addend) : function.getArg(3),
                              builder.CreateNUWSub(end, first)});
  builder.CreateRetVoid();
}

void ProductKernels::emit_form(llvm::IRBuilder<>& builder, llvm::Function& function,
                               const Product& product, const ProductPlan& plan) const {
  switch (plan.form) {
    case ProductForm::kRows:
      ProductRows(builder, function, product, vector_bits_, plan.tile).emit();
      break;
    case ProductForm::kDots: ProductDots(builder, function, product, vector_bits_).emit(); break;
    case ProductForm::kPacked:
      ProductPacked(builder, function, product, vector_bits_, plan.tile).emit();
      break;
  }
}

void ProductKernels::emit_blocks(llvm::Function& function, const Product& product,
                                 const ProductPlan& plan, const ProductBlocks& blocks) {
  const Product whole = block_of_product(product, blocks, /*is_last=*/false);
  const Product last = block_of_product(product, blocks, /*is_last=*/true);
  const bool is_even = last.m == whole.m && last.n == whole.n;
  llvm::Function* kernel = get(whole, plan);
  llvm::Function* last_kernel = is_even ? kernel : get(last, plan);

  llvm::LLVMContext& context = module_.getContext();
  auto* entry = llvm::BasicBlock::Create(context, "entry", &function);
  auto* loop = llvm::BasicBlock::Create(context, "block", &function);
  auto* after = llvm::BasicBlock::Create(context, "after", &function);
  llvm::IRBuilder<> builder(entry);
  builder.CreateBr(loop);
  builder.SetInsertPoint(loop);
  llvm::PHINode* item = builder.CreatePHI(builder.getInt64Ty(), 2, "item");
  llvm::Argument* end = std::prev(function.arg_end());
  item->addIncoming(std::prev(end), entry);
  llvm::Value* per_matrix = builder.getInt64(blocks.per_matrix);
  llvm::Value* matrix = builder.CreateUDiv(item, per_matrix);
  llvm::Value* block = builder.CreateURem(item, per_matrix);
  llvm::Value* first = builder.CreateNUWMul(block, builder.getInt64(blocks.size));

  const int64_t bytes = size_in_bytes(product.dtype);
  const auto operand = [&](unsigned position, const MatrixView& view, bool is_divided) {
    const int64_t stride = blocks.are_columns ? view.column_stride : view.row_stride;
    return element_address(builder, function.getArg(position), {matrix, first},
                           {view.batch_stride, is_divided ? stride : 0}, bytes);
  };
  std::vector<llvm::Value*> arguments = {
      operand(0, product.lhs, !blocks.are_columns), operand(1, product.rhs, blocks.are_columns),
      operand(2, product.out, true),
      product.addend ? operand(3, *product.addend, true) : function.getArg(3)};
  if (product.has_open_rows) arguments.push_back(function.getArg(4));
  if (is_even) {
    builder.CreateCall(kernel, arguments);
  } else {
    emit_if_else(
        builder, builder.CreateICmpEQ(block, builder.getInt64(blocks.per_matrix - 1)),
        [&] { builder.CreateCall(last_kernel, arguments); },
        [&] { builder.CreateCall(kernel, arguments); });
  }
  llvm::Value* next = builder.CreateNUWAdd(item, builder.getInt64(1));
  item->addIncoming(next, builder.GetInsertBlock());
  builder.CreateCondBr(builder.CreateICmpULT(next, end), loop, after);
  builder.SetInsertPoint(after);
  builder.CreateRetVoid();
}

}  // namespace hostjit
