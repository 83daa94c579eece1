// SPDX-License-Identifier: Apache-2.0
#include "passes/arena_placement.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace hostjit {
namespace {

int64_t round_up(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Bytes alive from each instant at which a buffer begins or ends.
std::map<int64_t, int64_t> live_bytes_by_instant(std::span<const LiveBytes> buffers) {
  std::map<int64_t, int64_t> live;
  for (const LiveBytes& buffer : buffers) {
    if (buffer.begin >= buffer.end) continue;
    live[buffer.begin] += buffer.bytes;
    live[buffer.end] -= buffer.bytes;
  }
  int64_t sum = 0;
  for (auto& [instant, bytes] : live) bytes = sum += bytes;
  return live;
}

// The most bytes alive at an instant of each buffer's life.
std::vector<int64_t> breadths(std::span<const LiveBytes> buffers) {
  const std::map<int64_t, int64_t> live = live_bytes_by_instant(buffers);
  std::vector<int64_t> result;
  result.reserve(buffers.size());
  for (const LiveBytes& buffer : buffers) {
    int64_t most = 0;
    const auto end = live.lower_bound(buffer.end);
    for (auto at = live.lower_bound(buffer.begin); at != end; ++at) {
      most = std::max(most, at->second);
    }
    result.push_back(most);
  }
  return result;
}

// Attempts beyond the greedy orders when those miss the lower bound.
constexpr int kNumRepairs = 64;

enum class Fit { kLowest, kTightest };

// Places the buffers in `order`, each into a gap between those placed before that live with it.
ArenaPlacement place_in_order(std::span<const LiveBytes> buffers, const std::vector<size_t>& order,
                              Fit fit) {
  ArenaPlacement placement{std::vector<int64_t>(buffers.size(), 0), 0};
  std::vector<size_t> by_offset;
  for (const size_t index : order) {
    const LiveBytes& buffer = buffers[index];
    if (buffer.bytes == 0) continue;
    int64_t gap_begin = 0;
    int64_t best_offset = -1;
    int64_t best_gap = std::numeric_limits<int64_t>::max();
    for (const size_t other : by_offset) {
      if (!buffers[other].overlaps(buffer)) continue;
      const int64_t gap = placement.offsets[other] - gap_begin;
      if (gap >= buffer.bytes && gap < best_gap) {
        best_offset = gap_begin;
        best_gap = gap;
        if (fit == Fit::kLowest) break;
      }
      gap_begin = std::max(gap_begin, placement.offsets[other] + buffers[other].bytes);
    }
    const int64_t offset = best_offset >= 0 ? best_offset : gap_begin;
    placement.offsets[index] = offset;
    placement.bytes = std::max(placement.bytes, offset + buffer.bytes);
    const auto after = std::ranges::upper_bound(
        by_offset, offset, {}, [&](size_t other) { return placement.offsets[other]; });
    by_offset.insert(after, index);
  }
  return placement;
}

// Indices of the buffers by falling `key`; among equals those that begin first.
template <class Key>
std::vector<size_t> falling(std::span<const LiveBytes> buffers, Key key) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const auto key_a = key(a);
    const auto key_b = key(b);
    return std::tie(key_b, buffers[a].begin) < std::tie(key_a, buffers[b].begin);
  });
  return order;
}

std::vector<std::vector<size_t>> greedy_orders(std::span<const LiveBytes> buffers) {
  const auto bytes = [&](size_t i) { return buffers[i].bytes; };
  const auto span = [&](size_t i) { return buffers[i].end - buffers[i].begin; };
  const std::vector<int64_t> breadth = breadths(buffers);
  return {
      falling(buffers, [&](size_t i) { return bytes(i); }),
      falling(buffers, [&](size_t i) { return std::pair(breadth[i], bytes(i)); }),
      falling(buffers, [&](size_t i) { return std::pair(span(i), bytes(i)); }),
      falling(buffers, [&](size_t i) { return static_cast<double>(span(i)) * bytes(i); }),
      falling(buffers, [&](size_t i) { return -buffers[i].begin; }),
  };
}

// The buffer that ends highest.
size_t topmost(std::span<const LiveBytes> buffers, const ArenaPlacement& placement) {
  size_t top = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (placement.offsets[i] + buffers[i].bytes == placement.bytes) top = i;
  }
  return top;
}

struct Lane {
  std::vector<LiveBytes> buffers;
  std::vector<size_t> positions;  // among all
};

// By rising number.
std::vector<Lane> split_into_lanes(std::span<const LiveBytes> buffers,
                                   std::span<const int64_t> lanes) {
  std::map<int64_t, Lane> by_number;
  for (size_t i = 0; i < buffers.size(); ++i) {
    Lane& lane = by_number[lanes[i]];
    lane.buffers.push_back(buffers[i]);
    lane.positions.push_back(i);
  }
  std::vector<Lane> all;
  all.reserve(by_number.size());
  for (auto& [number, lane] : by_number) all.push_back(std::move(lane));
  return all;
}

}  // namespace

int64_t most_bytes_live(std::span<const LiveBytes> buffers) {
  int64_t most = 0;
  for (const auto& [instant, bytes] : live_bytes_by_instant(buffers)) most = std::max(most, bytes);
  return most;
}

ArenaPlacement place_in_arena(std::span<const LiveBytes> buffers, int64_t alignment,
                              Effort effort) {
  std::vector<LiveBytes> rounded(buffers.begin(), buffers.end());
  for (LiveBytes& buffer : rounded) buffer.bytes = round_up(buffer.bytes, alignment);
  const int64_t bound = most_bytes_live(rounded);

  ArenaPlacement best{std::vector<int64_t>(buffers.size(), 0), std::numeric_limits<int64_t>::max()};
  std::vector<size_t> best_order;
  Fit best_fit = Fit::kLowest;
  const auto attempt = [&](const std::vector<size_t>& order, Fit fit) {
    ArenaPlacement placement = place_in_order(rounded, order, fit);
    const size_t top = topmost(rounded, placement);
    if (placement.bytes < best.bytes) {
      best = std::move(placement);
      best_order = order;
      best_fit = fit;
    }
    return top;
  };
  if (effort == Effort::kQuick) {
    attempt(falling(rounded, [&](size_t i) { return rounded[i].bytes; }), Fit::kTightest);
    return best;
  }
  for (const std::vector<size_t>& order : greedy_orders(rounded)) {
    for (const Fit fit : {Fit::kLowest, Fit::kTightest}) {
      attempt(order, fit);
      if (best.bytes == bound) return best;
    }
  }
  // What came to lie on top was placed too late: the next attempt places it first.
  std::vector<size_t> order = best_order;
  const Fit fit = best_fit;
  for (int i = 0; i < kNumRepairs && best.bytes > bound; ++i) {
    const auto top = std::ranges::find(order, attempt(order, fit));
    std::rotate(order.begin(), top, std::next(top));
  }
  return best;
}

int64_t most_bytes_live(std::span<const LiveBytes> buffers, std::span<const int64_t> lanes) {
  int64_t sum = 0;
  for (const Lane& lane : split_into_lanes(buffers, lanes)) sum += most_bytes_live(lane.buffers);
  return sum;
}

ArenaPlacement place_in_arena(std::span<const LiveBytes> buffers, std::span<const int64_t> lanes,
                              int64_t alignment, Effort effort) {
  ArenaPlacement all{std::vector<int64_t>(buffers.size(), 0), 0};
  for (const Lane& lane : split_into_lanes(buffers, lanes)) {
    const int64_t first = round_up(all.bytes, alignment);
    const ArenaPlacement placement = place_in_arena(lane.buffers, alignment, effort);
    for (size_t i = 0; i < lane.buffers.size(); ++i) {
      all.offsets[lane.positions[i]] = first + placement.offsets[i];
    }
    all.bytes = first + placement.bytes;
  }
  return all;
}

}  // namespace hostjit
