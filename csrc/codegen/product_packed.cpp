// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_packed.h"

#include <algorithm>

#include "codegen/loop_nest.h"
#include "codegen/vector_transpose.h"

namespace hostjit {

ProductPacked::ProductPacked(llvm::IRBuilder<>& builder, llvm::Function& function,
                             const Product& product, unsigned vector_bits, const ProductTile& tile)
    : ProductEmitter(builder, function, product, vector_bits),
      tile_(tile),
      num_depths_((product.k + tile.depth - 1) / tile.depth) {
  const int64_t elements = tile_.depth * panel_columns() * tile_.panels;
  llvm::AllocaInst* panels =
      builder_.CreateAlloca(llvm::ArrayType::get(scalar_, elements), nullptr, "panels");
  panels->setAlignment(llvm::Align(64));
  panels_ = panels;
  // More than a page of stack at once could step over the page that guards its end.
  function.addFnAttr("probe-stack", "inline-asm");
}

void ProductPacked::emit() {
  const int64_t num_panels = product_.n / panel_columns();
  emit_loop(builder_, (num_panels + tile_.panels - 1) / tile_.panels, [&](llvm::Value* index) {
    llvm::Value* first = builder_.CreateNUWMul(index, builder_.getInt64(tile_.panels));
    llvm::Value* count = builder_.getInt64(tile_.panels);
    if (num_panels % tile_.panels != 0) {
      llvm::Value* left = builder_.CreateNUWSub(builder_.getInt64(num_panels), first);
      count = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, count, left);
    }
    emit_columns(builder_.CreateNUWMul(first, builder_.getInt64(panel_columns())), count,
                 panel_columns());
  });
  const int64_t rest = product_.n % panel_columns();
  if (rest > 0) emit_columns(builder_.getInt64(product_.n - rest), builder_.getInt64(1), rest);
}

void ProductPacked::emit_columns(llvm::Value* first, llvm::Value* num_panels, int64_t count) {
  const auto for_each_panel = [&](const auto& f) {
    reduce(num_panels, {}, [&](llvm::Value* index, const Values&) -> Values {
      llvm::Value* at = builder_.CreateNUWMul(index, builder_.getInt64(panel_columns()));
      f({.first = builder_.CreateNUWAdd(first, at),
         .count = count,
         .panel =
             element_address(builder_, panels_, {index}, {tile_.depth * panel_columns()}, bytes_)});
      return {};
    });
  };
  emit_loop(builder_, num_depths_, [&](llvm::Value* index) {
    const Depth depth = depth_at(index);
    for_each_panel([&](const Columns& columns) { pack(depth, columns); });
    for_blocks(product_.m, tile_.rows, [&](llvm::Value* row, int64_t num_rows) {
      for_each_panel([&](const Columns& columns) { emit_tile(depth, {row, num_rows}, columns); });
    });
  });
}

ProductPacked::Depth ProductPacked::depth_at(llvm::Value* index) {
  Depth depth{.first = builder_.CreateNUWMul(index, builder_.getInt64(tile_.depth)),
              .size = builder_.getInt64(product_.k),
              .is_first = builder_.CreateICmpEQ(index, builder_.getInt64(0)),
              .is_last = builder_.CreateICmpEQ(index, builder_.getInt64(num_depths_ - 1))};
  if (is_whole()) return depth;
  const int64_t rest = product_.k - (num_depths_ - 1) * tile_.depth;
  depth.size =
      builder_.CreateSelect(depth.is_last, builder_.getInt64(rest), builder_.getInt64(tile_.depth));
  return depth;
}

void ProductPacked::pack(const Depth& depth, const Columns& columns) {
  if (product_.rhs.column_stride == 1 || product_.n == 1) {
    pack_rows(depth, columns);
  } else {
    pack_columns(depth, columns);
  }
}

void ProductPacked::pack_rows(const Depth& depth, const Columns& columns) {
  reduce(depth.size, {}, [&](llvm::Value* k, const Values&) -> Values {
    llvm::Value* row = builder_.CreateNUWAdd(depth.first, k);
    for (int64_t j = 0; j < num_vectors(columns.count); ++j) {
      llvm::Value* from = element(product_.rhs, rhs_, row, plus(columns.first, j * lanes_));
      store(load(from, lanes_, lanes_of(j, columns.count)), panel_row(columns.panel, k, j), lanes_,
            lanes_);
    }
    return {};
  });
}

void ProductPacked::pack_columns(const Depth& depth, const Columns& columns) {
  // The last depth may end in less than a square.
  const int64_t in_last = product_.k - (num_depths_ - 1) * tile_.depth;
  const int64_t rest = in_last % lanes_;
  const auto squares_of = [&](int64_t elements) { return builder_.getInt64(elements / lanes_); };
  llvm::Value* num_squares = is_whole() ? squares_of(in_last)
                                        : builder_.CreateSelect(depth.is_last, squares_of(in_last),
                                                                squares_of(tile_.depth));
  const auto pack_strip = [&](const Columns& strip) {
    const auto pack_squares = [&] {
      reduce(num_squares, {}, [&](llvm::Value* square, const Values&) -> Values {
        llvm::Value* k = builder_.CreateNUWMul(square, builder_.getInt64(lanes_));
        pack_square(depth, k, lanes_, strip);
        return {};
      });
    };
    const auto pack_rest = [&] {
      if (rest > 0) pack_square(depth, builder_.getInt64(in_last - rest), rest, strip);
    };
    if (is_whole()) {
      if (in_last >= lanes_) pack_squares();
      pack_rest();
    } else if (in_last >= lanes_) {
      pack_squares();
      if (rest > 0) emit_if_else(builder_, depth.is_last, pack_rest, [] {});
    } else {
      emit_if_else(builder_, depth.is_last, pack_rest, pack_squares);
    }
  };
  for_blocks(columns.count, lanes_, [&](llvm::Value* column, int64_t count) {
    pack_strip({.first = builder_.CreateNUWAdd(columns.first, column),
                .count = count,
                .panel = element_address(builder_, columns.panel, {column}, {1}, bytes_)});
  });
}

void ProductPacked::pack_square(const Depth& depth, llvm::Value* k, int64_t count,
                                const Columns& columns) {
  llvm::Value* row = builder_.CreateNUWAdd(depth.first, k);
  Values square(lanes_, zeros(lanes_));
  for (int64_t i = 0; i < columns.count; ++i) {
    square[i] = load(element(product_.rhs, rhs_, row, plus(columns.first, i)), lanes_, count);
  }
  square = transpose(builder_, std::move(square));
  for (int64_t i = 0; i < count; ++i) {
    store(square[i], panel_row(columns.panel, plus(k, i), 0), lanes_, lanes_);
  }
}

void ProductPacked::emit_tile(const Depth& depth, const Rows& rows, const Columns& columns) {
  const int64_t vectors = num_vectors(columns.count);
  Values sums = load_sums(depth, rows, columns);
  sums = reduce(depth.size, std::move(sums), [&](llvm::Value* k, Values values) {
    Values b;
    for (int64_t j = 0; j < vectors; ++j) {
      b.push_back(load(panel_row(columns.panel, k, j), lanes_, lanes_));
    }
    llvm::Value* column = builder_.CreateNUWAdd(depth.first, k);
    for (int64_t i = 0; i < rows.count; ++i) {
      llvm::Value* from = element(product_.lhs, lhs_, plus(rows.first, i), column);
      llvm::Value* a = splat(load_scalar(from), lanes_);
      for (int64_t j = 0; j < vectors; ++j) {
        llvm::Value*& sum = values[i * vectors + j];
        sum = multiply_add(a, b[j], sum);
      }
    }
    return values;
  });
  store_sums(depth, rows, columns, sums);
}

ProductEmitter::Values ProductPacked::load_sums(const Depth& depth, const Rows& rows,
                                                const Columns& columns) {
  const int64_t vectors = num_vectors(columns.count);
  Values sums(rows.count * vectors, zeros(lanes_));
  if (is_whole()) return sums;
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  auto* resume = llvm::BasicBlock::Create(builder_.getContext(), "resume", &function_);
  auto* start = llvm::BasicBlock::Create(builder_.getContext(), "start", &function_);
  builder_.CreateCondBr(depth.is_first, start, resume);
  builder_.SetInsertPoint(resume);
  Values waiting;
  for (int64_t i = 0; i < rows.count; ++i) {
    for (int64_t j = 0; j < vectors; ++j) {
      llvm::Value* column = plus(columns.first, j * lanes_);
      waiting.push_back(load(element(product_.out, out_, plus(rows.first, i), column), lanes_,
                             lanes_of(j, columns.count)));
    }
  }
  builder_.CreateBr(start);
  builder_.SetInsertPoint(start);
  for (size_t i = 0; i < sums.size(); ++i) {
    llvm::PHINode* sum = builder_.CreatePHI(vector(lanes_), 2);
    sum->addIncoming(sums[i], before);
    sum->addIncoming(waiting[i], resume);
    sums[i] = sum;
  }
  return sums;
}

void ProductPacked::store_sums(const Depth& depth, const Rows& rows, const Columns& columns,
                               const Values& sums) {
  const int64_t vectors = num_vectors(columns.count);
  const auto for_each_sum = [&](const auto& f) {
    for (int64_t i = 0; i < rows.count; ++i) {
      for (int64_t j = 0; j < vectors; ++j) {
        f(sums[i * vectors + j], plus(rows.first, i), plus(columns.first, j * lanes_),
          lanes_of(j, columns.count));
      }
    }
  };
  const auto finish = [&] {
    for_each_sum([&](llvm::Value* sum, llvm::Value* row, llvm::Value* column, int64_t count) {
      store_result(sum, lanes_, row, column, count);
    });
  };
  const auto wait = [&] {
    for_each_sum([&](llvm::Value* sum, llvm::Value* row, llvm::Value* column, int64_t count) {
      store(sum, element(product_.out, out_, row, column), lanes_, count);
    });
  };
  const bool is_plain = !product_.addend && product_.alpha == 1.0;
  if (is_whole() || is_plain) return finish();
  emit_if_else(builder_, depth.is_last, finish, wait);
}

llvm::Value* ProductPacked::panel_row(llvm::Value* panel, llvm::Value* k, int64_t vector) {
  return element_address(builder_, panel, {k, builder_.getInt64(vector)}, {panel_columns(), lanes_},
                         bytes_);
}

}  // namespace hostjit
