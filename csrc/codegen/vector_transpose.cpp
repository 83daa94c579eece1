// SPDX-License-Identifier: Apache-2.0
#include "codegen/vector_transpose.h"

#include <functional>

namespace hostjit {
namespace {

using Values = std::vector<llvm::Value*>;

class Shuffles {
 public:
  Shuffles(llvm::IRBuilder<>& builder, const llvm::Value* vector) : builder_(builder) {
    const auto* type = llvm::cast<llvm::FixedVectorType>(vector->getType());
    lanes_ = static_cast<int>(type->getNumElements());
    per_block_ = 128 / static_cast<int>(type->getScalarSizeInBits());
  }

  int lanes() const { return lanes_; }
  int per_block() const { return per_block_; }

  // Within each 128 bits: alternates groups of `group` elements of the lower halves of a and b, or
  // of the upper ones.
  llvm::Value* alternate(llvm::Value* a, llvm::Value* b, int group, bool upper) {
    return shuffle(a, b, [&](int lane) {
      const int position = lane % per_block_;
      const int index = position / group;
      const int from = index / 2 * group + position % group + (upper ? per_block_ / 2 : 0);
      return index % 2 * lanes_ + lane - position + from;
    });
  }
  // The 128-bit blocks at even places of a and b, or those at odd ones.
  llvm::Value* every_other(llvm::Value* a, llvm::Value* b, bool odd) {
    return shuffle(a, b, [&](int lane) {
      const int block = lane / per_block_ * 2 + (odd ? 1 : 0);
      return block * per_block_ + lane % per_block_;
    });
  }

 private:
  llvm::Value* shuffle(llvm::Value* a, llvm::Value* b, const std::function<int(int)>& source) {
    llvm::SmallVector<int> sources;
    for (int lane = 0; lane < lanes_; ++lane) sources.push_back(source(lane));
    return builder_.CreateShuffleVector(a, b, sources);
  }

  llvm::IRBuilder<>& builder_;
  int lanes_;
  int per_block_;
};

// Bit-reversed order of `count` (a power of two) things that were split by parity each time.
int place_after_splits(int index, int count) {
  int place = 0;
  for (int bit = 1; bit < count; bit *= 2) place = place * 2 + (index / bit) % 2;
  return place;
}

}  // namespace

std::vector<llvm::Value*> transpose(llvm::IRBuilder<>& builder, std::vector<llvm::Value*> vectors) {
  Shuffles shuffles(builder, vectors[0]);
  const int per_block = shuffles.per_block();
  const int blocks = shuffles.lanes() / per_block;
  const size_t count = vectors.size();
  // Squares of per_block within 128 bits. Vector i of a square meets the one `distance` after it.
  for (int distance = 1; distance < per_block; distance *= 2) {
    Values next(count);
    for (size_t square = 0; square < count; square += per_block) {
      for (int i = 0; i < per_block / 2; ++i) {
        // After the first round the halves of one pair are neighbours: [lower 01, upper 01, lower
        // 23, upper 23] meet as (lower 01, lower 23) and (upper 01, upper 23).
        const int first = distance == 1 ? 2 * i : i;
        llvm::Value* a = vectors[square + first];
        llvm::Value* b = vectors[square + first + distance];
        next[square + 2 * i] = shuffles.alternate(a, b, distance, /*upper=*/false);
        next[square + 2 * i + 1] = shuffles.alternate(a, b, distance, /*upper=*/true);
      }
    }
    vectors = std::move(next);
  }
  // Vector e of square s now has elements e, e + per_block, ... of the vectors of the square, one
  // block each.
  Values result(count);
  for (int e = 0; e < per_block; ++e) {
    Values rows;
    for (int square = 0; square < blocks; ++square) rows.push_back(vectors[square * per_block + e]);
    for (size_t groups = 1; groups < static_cast<size_t>(blocks); groups *= 2) {
      // `groups` lists one after another, each of rows that belong together.
      const size_t length = rows.size() / groups;
      Values next;
      for (size_t group = 0; group < groups; ++group) {
        for (const bool odd : {false, true}) {
          for (size_t i = 0; i < length; i += 2) {
            llvm::Value** pair = &rows[group * length + i];
            next.push_back(shuffles.every_other(pair[0], pair[1], odd));
          }
        }
      }
      rows = std::move(next);
    }
    for (int block = 0; block < blocks; ++block) {
      result[block * per_block + e] = rows[place_after_splits(block, blocks)];
    }
  }
  return result;
}

llvm::Value* sum_each(llvm::IRBuilder<>& builder, std::vector<llvm::Value*> vectors) {
  Shuffles shuffles(builder, vectors[0]);
  for (int group = 1; vectors.size() > 1; group *= 2) {
    Values sums;
    for (size_t i = 0; i < vectors.size(); i += 2) {
      llvm::Value* a = vectors[i];
      llvm::Value* b = vectors[i + 1];
      const bool is_within = group < shuffles.per_block();
      sums.push_back(is_within ? builder.CreateFAdd(shuffles.alternate(a, b, group, false),
                                                    shuffles.alternate(a, b, group, true))
                               : builder.CreateFAdd(shuffles.every_other(a, b, false),
                                                    shuffles.every_other(a, b, true)));
    }
    vectors = std::move(sums);
  }
  return vectors[0];
}

}  // namespace hostjit
