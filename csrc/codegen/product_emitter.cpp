// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_emitter.h"

#include <bit>

#include "codegen/half_floats.h"
#include "codegen/loop_nest.h"
#include "codegen/pair_dots.h"

namespace hostjit {
namespace {

llvm::VectorType* vector(llvm::Type* type, int64_t width) {
  return llvm::FixedVectorType::get(type, static_cast<unsigned>(width));
}

// Whether a register has so many lanes: no mask is needed, and what was stored can be loaded
// again before it reached the cache.
bool fills_register(const llvm::Type* type, int64_t count) {
  return std::has_single_bit(static_cast<uint64_t>(count)) &&
         count * type->getScalarSizeInBits() >= 128;
}

llvm::Constant* mask(llvm::IRBuilder<>& builder, int64_t width, int64_t count) {
  std::vector<llvm::Constant*> lanes;
  lanes.reserve(static_cast<size_t>(width));
  for (int64_t lane = 0; lane < width; ++lane) {
    lanes.push_back(llvm::ConstantInt::getBool(builder.getContext(), lane < count));
  }
  return llvm::ConstantVector::get(lanes);
}

}  // namespace

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
      lanes_(lanes_of_sums(product, vector_bits)),
      sum_(register_type(builder.getContext(), product.dtype)),
      element_(memory_type(builder.getContext(), product.dtype)),
      factor_(product.is_in_pairs() ? builder.getInt32Ty() : sum_) {}

void ProductEmitter::for_blocks(int64_t count, int64_t block, const BlockBody& f) {
  emit_loop(builder_, count / block, [&](llvm::Value* index) {
    f(builder_.CreateNUWMul(index, builder_.getInt64(block)), block);
  });
  const int64_t rest = count % block;
  if (rest > 0) f(builder_.getInt64(count - rest), rest);
}

void ProductEmitter::for_rows(int64_t block, Rest rest, const BlockBody& f) {
  if (!product_.has_open_rows) return for_blocks(product_.m, block, f);
  llvm::Value* rows = function_.getArg(4);
  llvm::Value* size = builder_.getInt64(block);
  llvm::Value* num_whole = builder_.CreateUDiv(rows, size);
  emit_loop(builder_, num_whole,
            [&](llvm::Value* index) { f(builder_.CreateNUWMul(index, size), block); });
  llvm::Value* first = builder_.CreateNUWMul(num_whole, size);
  llvm::Value* left = builder_.CreateNUWSub(rows, first);
  const auto emit_if_true = [&](llvm::Value* condition, int64_t count) {
    emit_if_else(builder_, condition, [&] { f(first, count); }, [] {});
  };
  if (rest == Rest::kOneBlock) {
    for (int64_t count = block - 1; count > 0; --count) {
      emit_if_true(builder_.CreateICmpEQ(left, builder_.getInt64(count)), count);
    }
    return;
  }
  for (auto part = static_cast<int64_t>(std::bit_ceil<uint64_t>(block) / 2); part > 0; part /= 2) {
    llvm::Value* taken = builder_.CreateAnd(left, builder_.getInt64(part));
    emit_if_true(builder_.CreateICmpNE(taken, builder_.getInt64(0)), part);
    first = builder_.CreateNUWAdd(first, taken);
  }
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
  store(narrow(builder_, result, product_.dtype), element(product_.out, out_, row, column), width,
        count);
}

llvm::Value* ProductEmitter::load_addend(int64_t width, llvm::Value* row, llvm::Value* column,
                                         int64_t count) {
  llvm::Value* from = element(*product_.addend, addend_, row, column);
  const auto widened = [&](llvm::Value* stored) { return widen(builder_, stored, product_.dtype); };
  if (product_.addend->column_stride == 1) return widened(load(element_, from, width, count));
  return splat(widened(builder_.CreateAlignedLoad(element_, from, llvm::Align(bytes_))), width);
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

llvm::Value* ProductEmitter::load_factors(llvm::Value* address, int64_t width, int64_t count) {
  if (product_.is_in_pairs()) return load(factor_, address, width, count);
  return widen(builder_, load(element_, address, width, count), product_.dtype);
}

llvm::Value* ProductEmitter::load_rhs_row(llvm::Value* row, llvm::Value* column, int64_t width,
                                          int64_t count) {
  llvm::Value* first = element(product_.rhs, rhs_, row, column);
  const int64_t to_partner = product_.rhs.row_stride / product_.per_factor;
  if (!product_.is_in_pairs() || to_partner == 1) return load_factors(first, width, count);
  const auto load_wide = [&](llvm::Value* address) {
    return builder_.CreateZExt(load(element_, address, width, count), vector(factor_, width));
  };
  llvm::Value* second =
      element_address(builder_, first, {builder_.getInt64(to_partner)}, {1}, bytes_);
  return builder_.CreateOr(load_wide(first), builder_.CreateShl(load_wide(second), 16));
}

llvm::Value* ProductEmitter::splat_factor(llvm::Value* address, int64_t width) {
  const auto load_bits = [&](llvm::Type* type) {
    return builder_.CreateAlignedLoad(type, address, llvm::Align(bytes_));
  };
  if (product_.is_in_pairs() || element_ == sum_) return splat(load_bits(factor_), width);
  // bf16 and f16 are one instruction that loads to all lanes and one that widens, where widening
  // the scalar would be three and more.
  llvm::Value* bits = load_bits(builder_.getInt16Ty());
  if (product_.dtype == DType::kF16) {
    llvm::Type* type = vector(element_, width);
    return widen(builder_, builder_.CreateBitCast(splat(bits, width), type), product_.dtype);
  }
  // Twice in each lane; the lower one is cleared.
  llvm::Type* lanes = vector(builder_.getInt32Ty(), width);
  llvm::Value* twice = builder_.CreateBitCast(splat(bits, 2 * width), lanes);
  return builder_.CreateBitCast(builder_.CreateAnd(twice, 0xFFFF0000), vector(sum_, width));
}

llvm::Value* ProductEmitter::multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* sum) {
  if (product_.is_in_pairs()) return multiply_add_pairs(builder_, a, b, sum);
  llvm::IRBuilder<>::FastMathFlagGuard guard(builder_);
  llvm::FastMathFlags flags;
  flags.setAllowContract();
  builder_.setFastMathFlags(flags);
  const auto* constant = llvm::dyn_cast<llvm::Constant>(sum);
  if (constant && constant->isNullValue()) return builder_.CreateFMul(a, b);
  return builder_.CreateFAdd(builder_.CreateFMul(a, b), sum);
}

void ProductEmitter::add_outer_product(llvm::Value** sums, int64_t rows, int64_t columns,
                                       const Factor& a, const Factor& b) {
  const bool keeps_columns = columns <= rows;
  Values kept;
  for (int64_t i = 0; i < std::min(rows, columns); ++i) kept.push_back(keeps_columns ? b(i) : a(i));
  for (int64_t other = 0; other < std::max(rows, columns); ++other) {
    llvm::Value* factor = keeps_columns ? a(other) : b(other);
    for (size_t i = 0; i < kept.size(); ++i) {
      const auto inner = static_cast<int64_t>(i);
      llvm::Value*& sum = sums[keeps_columns ? other * columns + inner : inner * columns + other];
      sum = keeps_columns ? multiply_add(factor, kept[i], sum) : multiply_add(kept[i], factor, sum);
    }
  }
}

llvm::Value* ProductEmitter::load(llvm::Type* type, llvm::Value* address, int64_t width,
                                  int64_t count) {
  const llvm::Align align(bytes_);
  if (count == width) return builder_.CreateAlignedLoad(vector(type, width), address, align);
  if (fills_register(type, count)) {
    llvm::Value* part = builder_.CreateAlignedLoad(vector(type, count), address, align);
    llvm::SmallVector<int> lanes;
    // The lanes after the first `count` are any one of the zeros.
    for (int64_t i = 0; i < width; ++i) lanes.push_back(static_cast<int>(std::min(i, count)));
    return builder_.CreateShuffleVector(part, zeros(type, count), lanes);
  }
  return builder_.CreateMaskedLoad(vector(type, width), address, align,
                                   mask(builder_, width, count), zeros(type, width));
}

llvm::Value* ProductEmitter::splat(llvm::Value* element, int64_t width) {
  return builder_.CreateVectorSplat(static_cast<unsigned>(width), element);
}

void ProductEmitter::store(llvm::Value* value, llvm::Value* address, int64_t width, int64_t count) {
  const llvm::Align align(bytes_);
  if (count == width) {
    builder_.CreateAlignedStore(value, address, align);
  } else if (fills_register(value->getType()->getScalarType(), count)) {
    llvm::SmallVector<int> lanes;
    for (int64_t i = 0; i < count; ++i) lanes.push_back(static_cast<int>(i));
    builder_.CreateAlignedStore(builder_.CreateShuffleVector(value, lanes), address, align);
  } else {
    builder_.CreateMaskedStore(value, address, align, mask(builder_, width, count));
  }
}

llvm::Value* ProductEmitter::plus(llvm::Value* index, int64_t offset) {
  return offset == 0 ? index : builder_.CreateNUWAdd(index, builder_.getInt64(offset));
}

llvm::Constant* ProductEmitter::zeros(llvm::Type* type, int64_t width) const {
  return llvm::Constant::getNullValue(vector(type, width));
}

}  // namespace hostjit
