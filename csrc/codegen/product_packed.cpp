// SPDX-License-Identifier: Apache-2.0
#include "codegen/product_packed.h"

#include <algorithm>

#include "codegen/loop_nest.h"
#include "codegen/vector_transpose.h"

namespace hostjit {
namespace {

// On the stack, for panels that are packed again for the rows after them: few take little of it,
// many pay the packing.
constexpr int64_t kRowsThatWait = 128;

}  // namespace

ProductPacked::ProductPacked(llvm::IRBuilder<>& builder, llvm::Function& function,
                             const Product& product, unsigned vector_bits, const ProductTile& tile)
    : ProductEmitter(builder, function, product, vector_bits),
      tile_(tile),
      num_depths_((product.k + tile.depth - 1) / tile.depth),
      rows_at_a_time_(product.m) {
  const auto allocate = [&](llvm::Type* type, int64_t count, const char* name) {
    auto* place = builder_.CreateAlloca(llvm::ArrayType::get(type, count), nullptr, name);
    place->setAlignment(llvm::Align(64));
    return place;
  };
  panels_ = allocate(factor_, tile_.depth * panel_columns() * tile_.panels, "panels");
  if (!is_whole() && element_ != sum_) {
    rows_at_a_time_ = std::min(product.m, kRowsThatWait / tile_.rows * tile_.rows);
    sums_ = allocate(sum_, rows_at_a_time_ * panel_columns() * tile_.panels, "sums");
  }
  // More than a page of stack at once could step over the page that guards its end.
  function.addFnAttr("probe-stack", "inline-asm");
}

void ProductPacked::emit() {
  if (product_.has_open_rows) return emit_rows(builder_.getInt64(0), product_.m);
  for_blocks(product_.m, rows_at_a_time_,
             [&](llvm::Value* first, int64_t count) { emit_rows(first, count); });
}

void ProductPacked::emit_rows(llvm::Value* first_row, int64_t num_rows) {
  const int64_t num_panels = product_.n / panel_columns();
  emit_loop(builder_, (num_panels + tile_.panels - 1) / tile_.panels, [&](llvm::Value* index) {
    llvm::Value* first = builder_.CreateNUWMul(index, builder_.getInt64(tile_.panels));
    llvm::Value* count = builder_.getInt64(tile_.panels);
    if (num_panels % tile_.panels != 0) {
      llvm::Value* left = builder_.CreateNUWSub(builder_.getInt64(num_panels), first);
      count = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, count, left);
    }
    emit_columns(first_row, num_rows,
                 builder_.CreateNUWMul(first, builder_.getInt64(panel_columns())), count,
                 panel_columns());
  });
  const int64_t rest = product_.n % panel_columns();
  if (rest > 0) {
    emit_columns(first_row, num_rows, builder_.getInt64(product_.n - rest), builder_.getInt64(1),
                 rest);
  }
}

void ProductPacked::emit_columns(llvm::Value* first_row, int64_t num_rows, llvm::Value* first,
                                 llvm::Value* num_panels, int64_t count) {
  const auto for_each_panel = [&](const auto& f) {
    reduce(num_panels, {}, [&](llvm::Value* index, const Values&) -> Values {
      llvm::Value* at = builder_.CreateNUWMul(index, builder_.getInt64(panel_columns()));
      const auto part = [&](llvm::Value* base, int64_t rows) {
        return element_address(builder_, base, {index}, {rows * panel_columns()}, factor_bytes());
      };
      f({.first = builder_.CreateNUWAdd(first, at),
         .count = count,
         .panel = part(panels_, tile_.depth),
         .sums = sums_ ? part(sums_, rows_at_a_time_) : nullptr});
      return {};
    });
  };
  emit_loop(builder_, num_depths_, [&](llvm::Value* index) {
    const Depth depth = depth_at(index);
    for_each_panel([&](const Columns& columns) { pack(depth, columns); });
    const auto emit_row_tiles = [&](llvm::Value* place, int64_t tile_rows) {
      llvm::Value* row = sums_ ? builder_.CreateNUWAdd(first_row, place) : place;
      for_each_panel([&](const Columns& columns) {
        emit_tile(depth, {.first = row, .count = tile_rows, .place = place}, columns);
      });
    };
    if (product_.has_open_rows) {
      for_rows(tile_.rows, Rest::kPowersOfTwo, emit_row_tiles);
    } else {
      for_blocks(num_rows, tile_.rows, emit_row_tiles);
    }
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
      llvm::Value* column = plus(columns.first, j * lanes_);
      store(load_rhs_row(row, column, lanes_, lanes_of(j, columns.count)),
            panel_row(columns.panel, k, j), lanes_, lanes_);
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
                .panel = element_address(builder_, columns.panel, {column}, {1}, factor_bytes()),
                .sums = nullptr});
  });
}

void ProductPacked::pack_square(const Depth& depth, llvm::Value* k, int64_t count,
                                const Columns& columns) {
  llvm::Value* row = builder_.CreateNUWAdd(depth.first, k);
  Values square(lanes_, zeros(factor_, lanes_));
  for (int64_t i = 0; i < columns.count; ++i) {
    square[i] =
        load_factors(element(product_.rhs, rhs_, row, plus(columns.first, i)), lanes_, count);
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
    llvm::Value* column = builder_.CreateNUWAdd(depth.first, k);
    const auto a = [&](int64_t i) {
      return splat_factor(element(product_.lhs, lhs_, plus(rows.first, i), column), lanes_);
    };
    const auto b = [&](int64_t j) {
      return load(factor_, panel_row(columns.panel, k, j), lanes_, lanes_);
    };
    add_outer_product(values.data(), rows.count, vectors, a, b);
    return values;
  });
  store_sums(depth, rows, columns, sums);
}

ProductEmitter::Values ProductPacked::load_sums(const Depth& depth, const Rows& rows,
                                                const Columns& columns) {
  const int64_t vectors = num_vectors(columns.count);
  Values sums(rows.count * vectors, zeros(sum_, lanes_));
  if (is_whole()) return sums;
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  auto* resume = llvm::BasicBlock::Create(builder_.getContext(), "resume", &function_);
  auto* start = llvm::BasicBlock::Create(builder_.getContext(), "start", &function_);
  builder_.CreateCondBr(depth.is_first, start, resume);
  builder_.SetInsertPoint(resume);
  Values waiting;
  for (int64_t i = 0; i < rows.count; ++i) {
    for (int64_t j = 0; j < vectors; ++j) {
      waiting.push_back(load_waiting(rows, i, columns, j));
    }
  }
  builder_.CreateBr(start);
  builder_.SetInsertPoint(start);
  for (size_t i = 0; i < sums.size(); ++i) {
    llvm::PHINode* sum = builder_.CreatePHI(sums[i]->getType(), 2);
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
      for (int64_t j = 0; j < vectors; ++j) f(sums[i * vectors + j], i, j);
    }
  };
  const auto finish = [&] {
    for_each_sum([&](llvm::Value* sum, int64_t i, int64_t j) {
      store_result(sum, lanes_, plus(rows.first, i), plus(columns.first, j * lanes_),
                   lanes_of(j, columns.count));
    });
  };
  const auto wait = [&] {
    for_each_sum(
        [&](llvm::Value* sum, int64_t i, int64_t j) { store_waiting(sum, rows, i, columns, j); });
  };
  const bool is_plain = !product_.addend && product_.alpha == 1.0 && !sums_;
  if (is_whole() || is_plain) return finish();
  emit_if_else(builder_, depth.is_last, finish, wait);
}

llvm::Value* ProductPacked::load_waiting(const Rows& rows, int64_t row, const Columns& columns,
                                         int64_t vector) {
  return load(sum_, waiting_place(rows, row, columns, vector), lanes_,
              sums_ ? lanes_ : lanes_of(vector, columns.count));
}

void ProductPacked::store_waiting(llvm::Value* sum, const Rows& rows, int64_t row,
                                  const Columns& columns, int64_t vector) {
  store(sum, waiting_place(rows, row, columns, vector), lanes_,
        sums_ ? lanes_ : lanes_of(vector, columns.count));
}

llvm::Value* ProductPacked::waiting_place(const Rows& rows, int64_t row, const Columns& columns,
                                          int64_t vector) {
  if (sums_) return panel_row(columns.sums, plus(rows.place, row), vector);
  return element(product_.out, out_, plus(rows.first, row), plus(columns.first, vector * lanes_));
}

llvm::Value* ProductPacked::panel_row(llvm::Value* panel, llvm::Value* k, int64_t vector) {
  return element_address(builder_, panel, {k, builder_.getInt64(vector)}, {panel_columns(), lanes_},
                         factor_bytes());
}

}  // namespace hostjit
