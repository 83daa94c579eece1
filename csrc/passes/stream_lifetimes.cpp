// SPDX-License-Identifier: Apache-2.0
#include "passes/stream_lifetimes.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ir/effects.h"
#include "ir/stream_numbers.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

// By stream, the last instant of its work that is known to be done.
using Clock = std::vector<int64_t>;

void join(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool has_streams_inside(const Op& op) {
  bool found = false;
  for_each_region(op, [&](std::string_view, const NestedRegion& region) {
    for_each_op(*region, [&](const Op& inner) { found |= inner.info().orders_streams; });
  });
  return found;
}

// Goes through the body by the instants of buffer_lifetimes.
class StreamUses {
 public:
  StreamUses(const Program& program, const AliasAnalysis& aliases)
      : aliases_(aliases),
        numbers_(program),
        clocks_(static_cast<size_t>(numbers_.num_streams()) + 1),
        known_(clocks_.size()) {
    for (Clock& clock : clocks_) clock.resize(clocks_.size(), 0);
    for (const Value* input : program.inputs()) {
      if (std::holds_alternative<StreamType>(input->type())) streams_[input] = numbers_.of(input);
    }
    for (const auto& op : program.body()) visit(*op);
    end_ = instant_ + 1;
  }

  bool is_unknown() const { return is_unknown_; }
  int64_t end() const { return end_; }

  int64_t owner(const Value* root) const {
    const auto found = uses_.find(root);
    return found == uses_.end() ? 0 : found->second.owner;
  }

  // Where the owner has waited for all uses.
  int64_t settled(const Value* root) const {
    const auto found = uses_.find(root);
    if (found == uses_.end()) return 0;
    const Uses& uses = found->second;
    if (uses.last.size() == 1) return 0;
    for (const auto& [instant, clock] : known_[static_cast<size_t>(uses.owner)]) {
      const bool has_all = std::ranges::all_of(uses.last, [&](const auto& use) {
        return use.first == uses.owner || use.second <= clock[static_cast<size_t>(use.first)];
      });
      if (has_all) return instant;
    }
    return end_;
  }

 private:
  struct Uses {
    int64_t owner = 0;
    std::map<int64_t, int64_t> last;  // instants, by stream
  };

  void visit(const Op& op) {
    ++instant_;
    order(op);
    use_all(op, stream_of(op));
    if (!has_regions(op)) return;
    is_unknown_ |= has_streams_inside(op);
    for_each_region(op, [&](std::string_view, const NestedRegion& region) { visit(*region); });
    ++instant_;
    for_each_region(op, [&](std::string_view, const NestedRegion& region) {
      for_each_op(*region, [&](const Op& inner) { use_all(inner, current_); });
    });
  }

  void visit(const Region& region) {
    for (const auto& op : region) visit(*op);
  }

  int64_t stream_of(const Op& op) const {
    const auto* launch = op.get_if<LaunchKernel>();
    return launch && launch->stream ? streams_.at(launch->stream) : current_;
  }

  void use_all(const Op& op, int64_t stream) {
    for_each_operand(op, [&](const Value* value, Access access) {
      if (!reads(access) && !writes(access)) return;
      for (const Value* root : aliases_.roots(value)) {
        Uses& uses = uses_.try_emplace(root, Uses{stream, {}}).first->second;
        uses.last[stream] = instant_;
      }
    });
    clocks_[static_cast<size_t>(stream)][static_cast<size_t>(stream)] = instant_;
  }

  void order(const Op& op) {
    const auto number = [&](const Value* stream) {
      return static_cast<size_t>(stream ? streams_.at(stream) : current_);
    };
    if (const auto* now = op.get_if<CurrentStream>()) streams_[now->result] = current_;
    if (const auto* set = op.get_if<SetStream>()) current_ = streams_.at(set->stream);
    if (const auto* fork = op.get_if<PoolStream>()) {
      streams_[fork->result] = numbers_.of(fork->result);
      wait(number(fork->result), clocks_[number(nullptr)]);
    }
    if (const auto* record = op.get_if<RecordEvent>()) {
      events_[record->result] = clocks_[number(record->stream)];
    }
    if (const auto* wait_op = op.get_if<WaitEvent>()) {
      wait(number(wait_op->stream), events_.at(wait_op->event));
    }
    if (const auto* host = op.get_if<Synchronize>()) {
      const Clock done = clocks_[number(host->stream)];
      for (size_t stream = 0; stream < clocks_.size(); ++stream) wait(stream, done);
    }
  }

  void wait(size_t stream, const Clock& clock) {
    join(clocks_[stream], clock);
    known_[stream].emplace_back(instant_, clocks_[stream]);
  }

  const AliasAnalysis& aliases_;
  const StreamNumbers numbers_;
  int64_t instant_ = 0;
  int64_t end_ = 0;
  int64_t current_ = 0;
  bool is_unknown_ = false;  // regions change streams
  std::vector<Clock> clocks_;
  std::vector<std::vector<std::pair<int64_t, Clock>>> known_;  // after each wait of a stream
  std::unordered_map<const Value*, int64_t> streams_;
  std::unordered_map<const Value*, Clock> events_;
  std::unordered_map<const Value*, Uses> uses_;
};

}  // namespace

std::vector<int64_t> extend_over_streams(const Program& program, const AliasAnalysis& aliases,
                                         std::vector<BufferLifetime>& lifetimes) {
  std::vector<int64_t> owners(lifetimes.size(), 0);
  if (StreamNumbers(program).num_streams() == 0) return owners;
  const StreamUses uses(program, aliases);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    LiveBytes& live = lifetimes[i].live;
    if (uses.is_unknown()) {
      live.begin = 0;
      live.end = uses.end();
      continue;
    }
    owners[i] = uses.owner(lifetimes[i].buffer);
    live.end = std::max(live.end, uses.settled(lifetimes[i].buffer));
  }
  return owners;
}

}  // namespace hostjit
