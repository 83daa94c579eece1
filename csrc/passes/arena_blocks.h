// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/program.h"
#include "passes/arena_placement.h"

namespace hostjit {

// The blocks of an arena of a program with symbols (ArenaPlan), and where they are in a row.
class ArenaBlocks {
 public:
  // Of Program::arena or of Program::device_arena, whichever memory of `device` is in.
  ArenaBlocks(const Program& program, Device device);

  struct Buffer {
    const Value* value = nullptr;
    size_t block = 0;
  };
  const std::vector<Buffer>& buffers() const { return buffers_; }
  size_t size() const { return blocks_.size(); }
  // Otherwise there may be a row in which they have bytes in common.
  bool live_together(size_t a, size_t b) const { return blocks_[a].overlaps(blocks_[b]); }

  // `bytes` of each block. The placement is quick: it is done whenever sizes are new.
  ArenaPlacement place(std::span<const int64_t> bytes, int64_t alignment) const;
  // The most bytes alive at once, as ArenaPlan has it.
  int64_t lower_bound(std::span<const int64_t> bytes) const;

 private:
  std::vector<LiveBytes> with(std::span<const int64_t> bytes) const;

  std::vector<LiveBytes> blocks_;
  std::vector<int64_t> streams_;  // of each block
  std::vector<Buffer> buffers_;
};

}  // namespace hostjit
