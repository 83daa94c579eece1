// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_tiles.h"

#include <algorithm>

#include "codegen/loop_nest.h"

namespace hostjit {
namespace {

// Sums under way at the same time: enough to hide the latency of a multiply-add, few enough for
// the registers.
constexpr int64_t kSumsInFlight = 8;
constexpr int64_t kMostRows = 4;

}  // namespace

ProductTiles::ProductTiles(llvm::IRBuilder<>& builder, llvm::Function& function,
                           const Product& product, unsigned vector_bits)
    : builder_(builder),
      product_(product),
      lhs_(function.getArg(0)),
      rhs_(function.getArg(1)),
      out_(function.getArg(2)),
      addend_(function.getArg(3)),
      bytes_(size_in_bytes(product.dtype)),
      lanes_(vector_bits / (8 * bytes_)),
      scalar_(product.dtype == DType::kF32 ? builder.getFloatTy() : builder.getDoubleTy()) {}

void ProductTiles::emit() {
  if (product_.rhs.column_stride == 1 || product_.n == 1) {
    const int64_t num_vectors = (product_.n + lanes_ - 1) / lanes_;
    const int64_t rows = std::min(product_.m, kMostRows);
    const int64_t columns = lanes_ * std::clamp<int64_t>(kSumsInFlight / rows, 1, num_vectors);
    for_blocks(product_.m, rows, [&](llvm::Value* row, int64_t num_rows) {
      for_blocks(product_.n, columns, [&](llvm::Value* column, int64_t num_columns) {
        emit_row_tile(row, num_rows, column, num_columns);
      });
    });
    return;
  }
  // As many rows as columns, or so: a tile loads the sum of them and multiplies their product.
  const int64_t rows = product_.m >= 4 && lanes_ >= 16 ? 4 : std::min<int64_t>(product_.m, 2);
  const int64_t columns = lanes_ / rows;
  for_blocks(product_.m, rows, [&](llvm::Value* row, int64_t num_rows) {
    for_blocks(product_.n, columns, [&](llvm::Value* column, int64_t num_columns) {
      emit_dot_tile(row, num_rows, column, num_columns, columns);
    });
  });
}

void ProductTiles::emit_row_tile(llvm::Value* row, int64_t num_rows, llvm::Value* column,
                                 int64_t num_columns) {
  const int64_t num_vectors = (num_columns + lanes_ - 1) / lanes_;
  const auto columns_of = [&](int64_t j) { return std::min(lanes_, num_columns - j * lanes_); };
  // Small tiles split k, so that enough sums are under way.
  const int64_t num_sums = num_rows * num_vectors;
  const int64_t unroll = std::clamp<int64_t>(kSumsInFlight / num_sums, 1, product_.k);
  const auto step = [&](llvm::Value* k, int64_t part, Values& sums) {
    for (int64_t j = 0; j < num_vectors; ++j) {
      llvm::Value* b =
          load(element(product_.rhs, rhs_, k, plus(column, j * lanes_)), lanes_, columns_of(j));
      for (int64_t i = 0; i < num_rows; ++i) {
        llvm::Value* a = load_scalar(element(product_.lhs, lhs_, plus(row, i), k));
        llvm::Value*& sum = sums[part * num_sums + i * num_vectors + j];
        sum = multiply_add(builder_.CreateVectorSplat(static_cast<unsigned>(lanes_), a), b, sum);
      }
    }
  };
  Values sums(num_sums * unroll, llvm::Constant::getNullValue(vector(lanes_)));
  sums = reduce(product_.k / unroll, sums, [&](llvm::Value* index, Values values) {
    llvm::Value* first = builder_.CreateNUWMul(index, builder_.getInt64(unroll));
    for (int64_t part = 0; part < unroll; ++part) step(plus(first, part), part, values);
    return values;
  });
  for (int64_t k = product_.k / unroll * unroll; k < product_.k; ++k) {
    step(builder_.getInt64(k), k % unroll, sums);
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    for (int64_t j = 0; j < num_vectors; ++j) {
      llvm::Value* sum = sums[i * num_vectors + j];
      for (int64_t part = 1; part < unroll; ++part) {
        sum = builder_.CreateFAdd(sum, sums[part * num_sums + i * num_vectors + j]);
      }
      store(sum, lanes_, plus(row, i), plus(column, j * lanes_), columns_of(j));
    }
  }
}

void ProductTiles::emit_dot_tile(llvm::Value* row, int64_t num_rows, llvm::Value* column,
                                 int64_t num_columns, int64_t width) {
  const auto step = [&](llvm::Value* k, int64_t count, Values& sums) {
    Values a;
    for (int64_t i = 0; i < num_rows; ++i) {
      a.push_back(load(element(product_.lhs, lhs_, plus(row, i), k), lanes_, count));
    }
    for (int64_t j = 0; j < num_columns; ++j) {
      llvm::Value* b = load(element(product_.rhs, rhs_, k, plus(column, j)), lanes_, count);
      for (int64_t i = 0; i < num_rows; ++i) {
        llvm::Value*& sum = sums[i * num_columns + j];
        sum = multiply_add(a[i], b, sum);
      }
    }
  };
  llvm::Value* zeros = llvm::Constant::getNullValue(vector(lanes_));
  Values sums(num_rows * num_columns, zeros);
  const int64_t num_whole = product_.k / lanes_;
  sums = reduce(num_whole, sums, [&](llvm::Value* index, Values values) {
    step(builder_.CreateNUWMul(index, builder_.getInt64(lanes_)), lanes_, values);
    return values;
  });
  const int64_t rest = product_.k - num_whole * lanes_;
  if (rest > 0) step(builder_.getInt64(num_whole * lanes_), rest, sums);

  Values placed(lanes_, zeros);
  for (int64_t i = 0; i < num_rows; ++i) {
    for (int64_t j = 0; j < num_columns; ++j) placed[i * width + j] = sums[i * num_columns + j];
  }
  llvm::Value* all = sum_each(std::move(placed));
  for (int64_t i = 0; i < num_rows; ++i) {
    llvm::SmallVector<int> lanes;
    for (int64_t j = 0; j < width; ++j) lanes.push_back(static_cast<int>(i * width + j));
    store(builder_.CreateShuffleVector(all, lanes), width, plus(row, i), column, num_columns);
  }
}

llvm::Value* ProductTiles::sum_each(Values vectors) {
  llvm::SmallVector<int> even;
  llvm::SmallVector<int> odd;
  for (int lane = 0; lane < lanes_; ++lane) {
    even.push_back(2 * lane);
    odd.push_back(2 * lane + 1);
  }
  // Adding neighbours of two vectors makes one vector: the left half is the first's.
  while (vectors.size() > 1) {
    Values sums;
    for (size_t i = 0; i < vectors.size(); i += 2) {
      sums.push_back(
          builder_.CreateFAdd(builder_.CreateShuffleVector(vectors[i], vectors[i + 1], even),
                              builder_.CreateShuffleVector(vectors[i], vectors[i + 1], odd)));
    }
    vectors = std::move(sums);
  }
  return vectors[0];
}

void ProductTiles::store(llvm::Value* sums, int64_t width, llvm::Value* row, llvm::Value* column,
                         int64_t count) {
  const auto scaled = [&](llvm::Value* value, double factor) {
    if (factor == 1.0) return value;
    return builder_.CreateFMul(value, llvm::ConstantFP::get(value->getType(), factor));
  };
  llvm::Value* result = scaled(sums, product_.alpha);
  if (product_.addend) {
    llvm::Value* from = element(*product_.addend, addend_, row, column);
    llvm::Value* value =
        product_.addend->column_stride == 1
            ? load(from, width, count)
            : builder_.CreateVectorSplat(static_cast<unsigned>(width), load_scalar(from));
    result = builder_.CreateFAdd(result, scaled(value, product_.beta));
  }
  llvm::Value* target = element(product_.out, out_, row, column);
  if (count == width) {
    builder_.CreateAlignedStore(result, target, llvm::Align(bytes_));
  } else {
    builder_.CreateMaskedStore(result, target, llvm::Align(bytes_), mask(width, count));
  }
}

void ProductTiles::for_blocks(int64_t count, int64_t block,
                              const std::function<void(llvm::Value* first, int64_t size)>& f) {
  emit_loop(builder_, count / block, [&](llvm::Value* index) {
    f(builder_.CreateNUWMul(index, builder_.getInt64(block)), block);
  });
  const int64_t rest = count % block;
  if (rest > 0) f(builder_.getInt64(count - rest), rest);
}

ProductTiles::Values ProductTiles::reduce(
    int64_t count, Values values,
    const std::function<Values(llvm::Value* index, Values values)>& body) {
  if (count == 0) return values;
  if (count == 1) return body(builder_.getInt64(0), std::move(values));
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* loop = llvm::BasicBlock::Create(builder_.getContext(), "reduce", function);
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
  const Values results = body(index, values);
  llvm::BasicBlock* last = builder_.GetInsertBlock();
  llvm::Value* next = builder_.CreateNUWAdd(index, builder_.getInt64(1));
  index->addIncoming(next, last);
  for (size_t i = 0; i < results.size(); ++i) carried[i]->addIncoming(results[i], last);
  auto* after = llvm::BasicBlock::Create(builder_.getContext(), "reduced", function);
  builder_.CreateCondBr(builder_.CreateICmpULT(next, builder_.getInt64(count)), loop, after);
  builder_.SetInsertPoint(after);
  return results;
}

llvm::Value* ProductTiles::element(const MatrixView& matrix, llvm::Value* base, llvm::Value* row,
                                   llvm::Value* column) {
  return element_address(builder_, base, {row, column}, {matrix.row_stride, matrix.column_stride},
                         bytes_);
}

llvm::Value* ProductTiles::load(llvm::Value* address, int64_t width, int64_t count) {
  const llvm::Align align(bytes_);
  if (count == width) return builder_.CreateAlignedLoad(vector(width), address, align);
  return builder_.CreateMaskedLoad(vector(width), address, align, mask(width, count),
                                   llvm::Constant::getNullValue(vector(width)));
}

llvm::Value* ProductTiles::load_scalar(llvm::Value* address) {
  return builder_.CreateAlignedLoad(scalar_, address, llvm::Align(bytes_));
}

llvm::Value* ProductTiles::multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* sum) {
  llvm::IRBuilder<>::FastMathFlagGuard guard(builder_);
  llvm::FastMathFlags flags;
  flags.setAllowContract();
  builder_.setFastMathFlags(flags);
  return builder_.CreateFAdd(builder_.CreateFMul(a, b), sum);
}

llvm::Value* ProductTiles::plus(llvm::Value* index, int64_t offset) {
  return offset == 0 ? index : builder_.CreateNUWAdd(index, builder_.getInt64(offset));
}

llvm::VectorType* ProductTiles::vector(int64_t width) const {
  return llvm::FixedVectorType::get(scalar_, static_cast<unsigned>(width));
}

llvm::Constant* ProductTiles::mask(int64_t width, int64_t count) const {
  std::vector<llvm::Constant*> lanes;
  for (int64_t lane = 0; lane < width; ++lane) {
    lanes.push_back(llvm::ConstantInt::getBool(builder_.getContext(), lane < count));
  }
  return llvm::ConstantVector::get(lanes);
}

}  // namespace hostjit
