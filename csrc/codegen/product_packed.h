// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "codegen/product_emitter.h"
#include "codegen/product_plan.h"

namespace hostjit {

// A product of any layout. Copies panels of rhs, `depth` rows of as many columns as a tile has, to
// the stack in the order in which tiles read them, and passes all rows of lhs along them; as many
// panels at a time as the plan says. Sums of one depth wait in out for the next, or where out is
// narrower than they are, on the stack: then there are only so many rows at a time, and their
// number is not open.
class ProductPacked : public ProductEmitter {
 public:
  ProductPacked(llvm::IRBuilder<>& builder, llvm::Function& function, const Product& product,
                unsigned vector_bits, const ProductTile& tile);
  void emit();

 private:
  // Rows [first, first + size) of rhs; `size` is a constant when that is all of them.
  struct Depth {
    llvm::Value* first;
    llvm::Value* size;
    llvm::Value* is_first;
    llvm::Value* is_last;
  };
  struct Rows {
    llvm::Value* first;
    int64_t count;
    llvm::Value* place;  // among those at a time
  };
  struct Columns {
    llvm::Value* first;
    int64_t count;
    llvm::Value* panel;  // where they are packed
    llvm::Value* sums;   // where those of all rows at a time wait, if not in out
  };

  void emit_rows(llvm::Value* first, int64_t count);
  // These rows in `num_panels` columns of panels from `first` on, of `count` columns each.
  void emit_columns(llvm::Value* first_row, int64_t num_rows, llvm::Value* first,
                    llvm::Value* num_panels, int64_t count);
  Depth depth_at(llvm::Value* index);

  void pack(const Depth& depth, const Columns& columns);
  void pack_rows(const Depth& depth, const Columns& columns);
  void pack_columns(const Depth& depth, const Columns& columns);
  // `count` elements of each column, from element `k` of the panel on; at most as many columns as a
  // vector has lanes.
  void pack_square(const Depth& depth, llvm::Value* k, int64_t count, const Columns& columns);

  void emit_tile(const Depth& depth, const Rows& rows, const Columns& columns);
  Values load_sums(const Depth& depth, const Rows& rows, const Columns& columns);
  void store_sums(const Depth& depth, const Rows& rows, const Columns& columns, const Values& sums);

  // Of vector `vector` of row `row` of a tile.
  llvm::Value* load_waiting(const Rows& rows, int64_t row, const Columns& columns, int64_t vector);
  void store_waiting(llvm::Value* sum, const Rows& rows, int64_t row, const Columns& columns,
                     int64_t vector);
  llvm::Value* waiting_place(const Rows& rows, int64_t row, const Columns& columns, int64_t vector);

  bool is_whole() const { return num_depths_ == 1; }
  int64_t panel_columns() const { return tile_.vectors * lanes_; }
  int64_t factor_bytes() const { return factor_->getScalarSizeInBits() / 8; }
  llvm::Value* panel_row(llvm::Value* panel, llvm::Value* k, int64_t vector);

  ProductTile tile_;
  int64_t num_depths_;
  int64_t rows_at_a_time_;
  llvm::Value* panels_;
  llvm::Value* sums_ = nullptr;
};

}  // namespace hostjit
