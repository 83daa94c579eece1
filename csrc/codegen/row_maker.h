// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/substituted_program.h"
#include "passes/arena_blocks.h"
#include "runtime/abi.h"

namespace hostjit {

class StoragePlan;

// Makes the rows of a program with symbols: everything that its code needs for one combination of
// input sizes. Costs microseconds, no code is compiled. A row means what the program would mean
// with these sizes written into it, and what would be wrong with that program is wrong with the
// row.
class RowMaker {
 public:
  // Keeps a clone of a program after the passes, without kernels.
  explicit RowMaker(const Program& program);

  const RowSymbols& symbols() const { return symbols_; }

  // `sizes` of the input symbols, in their order. Throws Error when the program can't have these
  // sizes: a view would leave its memory, or shapes would not fit.
  RowContents make(std::span<const int64_t> sizes);

  // The program of the row that was made last. Ops and values are as in the original.
  const Program& program() const { return substituted_.program(); }
  // The same with the kernels of `original`, to be kept.
  Program clone_program(const Program& original) const;

 private:
  struct Slot {
    SlotSpec spec;
    const TensorType* type = nullptr;  // in the program of the row; null without symbols
    // Of a header over an arena: Storage::block, and what is added to where that is.
    int64_t block = -1;
    struct Term {
      size_t symbol;
      int64_t bytes;
    };
    std::vector<Term> terms;
  };
  struct Buffer {
    const TensorType* type;
    Allocate* allocate;
    size_t block;
  };
  struct Area {
    ArenaBlocks blocks;
    int64_t alignment;
    std::vector<Buffer> buffers;

    std::vector<int64_t> bytes_of_blocks() const;
    // For the sizes of `table`, at whose end it writes where the blocks are.
    ArenaPlan place(std::vector<int64_t>& table);
    ArenaPlan with_bound(ArenaPlan plan) const;
  };

  void add_slots(const StoragePlan& storage);
  Area make_area(const Program& program, Device device, int64_t alignment);
  SlotSpec fill(const Slot& slot, const RowContents& row) const;

  RowSymbols symbols_;
  SubstitutedProgram substituted_;
  Area arena_;
  std::optional<Area> device_arena_;
  std::vector<Slot> slots_;
};

}  // namespace hostjit
