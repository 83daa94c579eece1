// SPDX-License-Identifier: Apache-2.0
#include "passes/in_place_reuse.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "ir/effects.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

// How many operands of `op` may refer to the memory of `root`.
size_t num_uses(const Op& op, const Value* root, const AliasAnalysis& aliases) {
  return std::ranges::count_if(operand_uses(op), [&](const OperandUse& use) {
    const std::vector<Value*>& roots = aliases.roots(use.value);
    return std::ranges::find(roots, root) != roots.end();
  });
}

// The size of a contiguous type in bytes as a product.
struct SizeProduct {
  int64_t factor = 1;
  std::vector<std::string> symbols;  // sorted

  explicit SizeProduct(const TensorType& type) : factor(size_in_bytes(type.dtype)) {
    for (const Dim& dim : type.dims) {
      if (dim.is_constant()) {
        factor *= dim.value;
      } else {
        symbols.push_back(dim.symbol);
      }
    }
    std::ranges::sort(symbols);
  }
  bool operator==(const SizeProduct&) const = default;
};

// The same number of bytes, which is not known to be 0, whatever the symbols are.
bool have_same_size(const TensorType& a, const TensorType& b) {
  if (a.is_static() && b.is_static()) {
    return a.extent_in_bytes() == b.extent_in_bytes() && a.extent_in_bytes() > 0;
  }
  if (a.is_contiguous() && b.is_contiguous()) {
    const SizeProduct size(a);
    return size == SizeProduct(b) && size.factor > 0;
  }
  return a.dims == b.dims && a.strides == b.strides &&
         size_in_bytes(a.dtype) == size_in_bytes(b.dtype);
}

// `before` ends and `after` begins with what the op at `instant` does.
bool meet(const BufferLifetime& before, const BufferLifetime& after, int64_t instant) {
  return !before.is_persistent && before.last_use == instant && after.first_use == instant &&
         before.live.begin < after.live.begin &&
         have_same_size(before.buffer->tensor_type(), after.buffer->tensor_type());
}

class HandoverFinder {
 public:
  HandoverFinder(const AliasAnalysis& aliases, std::span<const BufferLifetime> lifetimes)
      : aliases_(aliases),
        lifetimes_(lifetimes),
        gives_(lifetimes.size(), false),
        takes_(lifetimes.size(), false) {
    for (size_t i = 0; i < lifetimes.size(); ++i) positions_[lifetimes[i].buffer] = i;
  }

  // Instants are counted as buffer_lifetimes does. The memory of an outer region is in use during
  // all of an inner one, so that none of its ops hands it over.
  void visit(const Region& region) {
    for (const auto& op : region) {
      ++instant_;
      add_handovers(*op);
      if (!has_regions(*op)) continue;
      for_each_region(*op, [&](std::string_view, const NestedRegion& nested) { visit(*nested); });
      ++instant_;
    }
  }

  std::vector<Handover> take() { return std::move(handovers_); }

 private:
  void add_handovers(const Op& op) {
    for (const auto& [read, written] : in_place_pairs(op)) {
      const auto before = positions_.find(read);
      const auto after = positions_.find(written);
      if (before == positions_.end() || after == positions_.end()) continue;
      if (gives_[before->second] || takes_[after->second]) continue;
      if (!meet(lifetimes_[before->second], lifetimes_[after->second], instant_)) continue;
      if (num_uses(op, read, aliases_) > 1 || num_uses(op, written, aliases_) > 1) continue;
      gives_[before->second] = takes_[after->second] = true;
      handovers_.push_back({before->second, after->second});
    }
  }

  const AliasAnalysis& aliases_;
  std::span<const BufferLifetime> lifetimes_;
  std::unordered_map<const Value*, size_t> positions_;
  std::vector<Handover> handovers_;
  std::vector<bool> gives_;
  std::vector<bool> takes_;
  int64_t instant_ = 0;
};

}  // namespace

std::vector<Handover> find_handovers(const Program& program, const AliasAnalysis& aliases,
                                     std::span<const BufferLifetime> lifetimes) {
  HandoverFinder finder(aliases, lifetimes);
  finder.visit(program.body());
  return finder.take();
}

}  // namespace hostjit
