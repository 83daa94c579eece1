// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_emitter.h"

#include <bit>

#include "codegen/loop_nest.h"

namespace hostjit {

ProductEmitter::ProductEmitter(llvm::IRBuilder<>& builder, llvm::Function& function,
                               const Product& product, unsigned vector_bits)
    : builder_(builder),
      function_(function),
      product_(product),
      lhs_(function.getArg(0)),
      rhs_(function.getArg(1)),
      out_(function.getArg(2)),
      addend_(function.getArg(3)),
      bytes_(size_in_bytes(product.dtype)),
      lanes_(vector_bits / (8 * bytes_)),
      scalar_(product.dtype == DType::kF32 ? builder.getFloatTy() : builder.getDoubleTy()) {}

void ProductEmitter::for_blocks(int64_t count, int64_t block, const BlockBody& f) {
  emit_loop(builder_, count / block, [&](llvm::Value* index) {
    f(builder_.CreateNUWMul(index, builder_.getInt64(block)), block);
  });
  const int64_t rest = count % block;
  if (rest > 0) f(builder_.getInt64(count - rest), rest);
}

ProductEmitter::Values ProductEmitter::reduce(int64_t count, Values values, const Round& round) {
  return reduce(builder_.getInt64(count), std::move(values), round);
}

ProductEmitter::Values ProductEmitter::reduce(llvm::Value* count, Values values,
                                              const Round& round) {
  if (const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(count)) {
    if (constant->isZero()) return values;
    if (constant->isOne()) return round(builder_.getInt64(0), std::move(values));
  }
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  auto* loop = llvm::BasicBlock::Create(builder_.getContext(), "reduce", &function_);
  builder_.CreateBr(loop);
  builder_.SetInsertPoint(loop);
  llvm::PHINode* index = builder_.CreatePHI(builder_.getInt64Ty(), 2, "k");
  index->addIncoming(builder_.getInt64(0), before);
  std::vector<llvm::PHINode*> carried;
  for (llvm::Value*& value : values) {
    carried.push_back(builder_.CreatePHI(value->getType(), 2, "sum"));
    carried.back()->addIncoming(value, before);
    value = carried.back();
  }
  const Values results = round(index, values);
  llvm::BasicBlock* last = builder_.GetInsertBlock();
  llvm::Value* next = builder_.CreateNUWAdd(index, builder_.getInt64(1));
  index->addIncoming(next, last);
  for (size_t i = 0; i < results.size(); ++i) carried[i]->addIncoming(results[i], last);
  auto* after = llvm::BasicBlock::Create(builder_.getContext(), "reduced", &function_);
  builder_.CreateCondBr(builder_.CreateICmpULT(next, count), loop, after);
  builder_.SetInsertPoint(after);
  return results;
}

void ProductEmitter::store_result(llvm::Value* sums, int64_t width, llvm::Value* row,
                                  llvm::Value* column, int64_t count) {
  llvm::Value* result = scaled(sums, product_.alpha);
  if (product_.addend) {
    llvm::Value* addend = load_addend(width, row, column, count);
    result = builder_.CreateFAdd(result, scaled(addend, product_.beta));
  }
  store(result, element(product_.out, out_, row, column), width, count);
}

llvm::Value* ProductEmitter::load_addend(int64_t width, llvm::Value* row, llvm::Value* column,
                                         int64_t count) {
  llvm::Value* from = element(*product_.addend, addend_, row, column);
  return product_.addend->column_stride == 1 ? load(from, width, count)
                                             : splat(load_scalar(from), width);
}

llvm::Value* ProductEmitter::scaled(llvm::Value* value, double factor) {
  if (factor == 1.0) return value;
  return builder_.CreateFMul(value, llvm::ConstantFP::get(value->getType(), factor));
}

llvm::Value* ProductEmitter::element(const MatrixView& matrix, llvm::Value* base, llvm::Value* row,
                                     llvm::Value* column) {
  return element_address(builder_, base, {row, column}, {matrix.row_stride, matrix.column_stride},
                         bytes_);
}

llvm::Value* ProductEmitter::load(llvm::Value* address, int64_t width, int64_t count) {
  const llvm::Align align(bytes_);
  if (count == width) return builder_.CreateAlignedLoad(vector(width), address, align);
  if (has_vector(count)) {
    llvm::Value* part = builder_.CreateAlignedLoad(vector(count), address, align);
    llvm::SmallVector<int> lanes;
    // The lanes after the first `count` are any one of the zeros.
    for (int64_t i = 0; i < width; ++i) lanes.push_back(static_cast<int>(std::min(i, count)));
    return builder_.CreateShuffleVector(part, zeros(count), lanes);
  }
  return builder_.CreateMaskedLoad(vector(width), address, align, mask(width, count), zeros(width));
}

llvm::Value* ProductEmitter::load_scalar(llvm::Value* address) {
  return builder_.CreateAlignedLoad(scalar_, address, llvm::Align(bytes_));
}

llvm::Value* ProductEmitter::splat(llvm::Value* element, int64_t width) {
  return builder_.CreateVectorSplat(static_cast<unsigned>(width), element);
}

void ProductEmitter::store(llvm::Value* value, llvm::Value* address, int64_t width, int64_t count) {
  const llvm::Align align(bytes_);
  if (count == width) {
    builder_.CreateAlignedStore(value, address, align);
  } else if (has_vector(count)) {
    llvm::SmallVector<int> lanes;
    for (int64_t i = 0; i < count; ++i) lanes.push_back(static_cast<int>(i));
    builder_.CreateAlignedStore(builder_.CreateShuffleVector(value, lanes), address, align);
  } else {
    builder_.CreateMaskedStore(value, address, align, mask(width, count));
  }
}

bool ProductEmitter::has_vector(int64_t count) const {
  return std::has_single_bit(static_cast<uint64_t>(count)) && count * bytes_ >= 16;
}

llvm::Value* ProductEmitter::multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* sum) {
  llvm::IRBuilder<>::FastMathFlagGuard guard(builder_);
  llvm::FastMathFlags flags;
  flags.setAllowContract();
  builder_.setFastMathFlags(flags);
  const auto* constant = llvm::dyn_cast<llvm::Constant>(sum);
  if (constant && constant->isNullValue()) return builder_.CreateFMul(a, b);
  return builder_.CreateFAdd(builder_.CreateFMul(a, b), sum);
}

llvm::Value* ProductEmitter::plus(llvm::Value* index, int64_t offset) {
  return offset == 0 ? index : builder_.CreateNUWAdd(index, builder_.getInt64(offset));
}

llvm::VectorType* ProductEmitter::vector(int64_t width) const {
  return llvm::FixedVectorType::get(scalar_, static_cast<unsigned>(width));
}

llvm::Constant* ProductEmitter::zeros(int64_t width) const {
  return llvm::Constant::getNullValue(vector(width));
}

llvm::Constant* ProductEmitter::mask(int64_t width, int64_t count) const {
  std::vector<llvm::Constant*> lanes;
  lanes.reserve(static_cast<size_t>(width));
  for (int64_t lane = 0; lane < width; ++lane) {
    lanes.push_back(llvm::ConstantInt::getBool(builder_.getContext(), lane < count));
  }
  return llvm::ConstantVector::get(lanes);
}

}  // namespace hostjit
