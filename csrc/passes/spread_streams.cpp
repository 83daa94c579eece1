// SPDX-License-Identifier: Apache-2.0
#include "passes/spread_streams.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/effects.h"
#include "ir/visitor.h"
#include "passes/alias_analysis.h"
#include "passes/cut_graphs.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

// As many as PyTorch's pool has.
constexpr int64_t kMostStreams = 32;

// One op that gives work to a stream.
struct Work {
  Op* op = nullptr;
  bool is_alone = false;  // all before it is done first, and all behind it later
  std::vector<size_t> dependencies = {};
  size_t stream = 0;
  int64_t end = 0;     // if everything takes one unit of time
  size_t ordinal = 0;  // among the work of its stream, from 1
};

bool on_other_device(const Op& op, Device device) {
  bool result = false;
  const auto look_at = [&](const Value* value) {
    if (!value->is_tensor()) return;
    const Device found = value->tensor_type().device;
    result |= found.type != DeviceType::kCPU && found != device;
  };
  for_each_operand(op, [&](const Value* value, Access) { look_at(value); });
  for_each_result(op, [&](const Value* value, ResultKind) { look_at(value); });
  return result;
}

// What each piece of work has to wait for.
class WorkFinder {
 public:
  WorkFinder(Program& program, Device device) : aliases_(program) {
    for (const Value* input : program.inputs()) {
      if (input->is_tensor() && !first_input_) first_input_ = input;
    }
    for (const auto& op : program.body()) {
      if (works_on_cuda(*op) || has_regions(*op)) add(*op, device);
    }
  }

  std::vector<Work> take() { return std::move(works_); }

 private:
  // What has touched some bytes of a root. A write takes the place of all that it covers: who comes
  // after it waits for it, and it for them.
  struct Touch {
    size_t work;
    bool is_write;
    ByteRange bytes;
  };

  void add(Op& op, Device device) {
    const size_t index = works_.size();
    Work& work = works_.emplace_back(Work{&op});
    const bool is_alone = has_regions(op) || on_other_device(op, device);
    const bool has_effects = !is_alone && !op.get_if<LaunchKernel>() && !is_removable(op);
    if (last_alone_) work.dependencies.push_back(*last_alone_);
    if (is_alone) {
      work.is_alone = true;
      work.dependencies.clear();
      for (size_t before = 0; before < index; ++before) work.dependencies.push_back(before);
      last_alone_ = index;
      touches_.clear();
      return;
    }
    // Effects beyond memory, such as random numbers, stay in their order.
    if (has_effects) note(nullptr, {index, /*is_write=*/true, ByteRange{}});
    for_each_operand(op, [&](const Value* value, Access access) {
      if (!reads(access) && !writes(access)) return;
      for (const Value* root : aliases_.roots(value)) {
        // Inputs may be one memory.
        if (aliases_.is_input(root)) {
          note(first_input_, {index, writes(access), ByteRange{}});
        } else {
          note(root, {index, writes(access), aliases_.bytes_used(op, value)});
        }
      }
    });
    for_each_result(op, [&](const Value* value, ResultKind kind) {
      if (kind == ResultKind::kOwned) note(value, {index, /*is_write=*/true, ByteRange{}});
    });
    std::ranges::sort(work.dependencies);
    const auto repeated = std::ranges::unique(work.dependencies);
    work.dependencies.erase(repeated.begin(), repeated.end());
  }

  void note(const Value* memory, const Touch& touch) {
    std::vector<Touch>& touches = touches_[memory];
    for (const Touch& before : touches) {
      const bool is_apart = !before.bytes.overlaps(touch.bytes);
      if (is_apart || (!before.is_write && !touch.is_write) || before.work == touch.work) continue;
      works_[touch.work].dependencies.push_back(before.work);
    }
    if (touch.is_write) {
      std::erase_if(touches,
                    [&](const Touch& before) { return touch.bytes.contains(before.bytes); });
    }
    touches.push_back(touch);
  }

  const AliasAnalysis aliases_;
  const Value* first_input_ = nullptr;
  std::optional<size_t> last_alone_;
  std::unordered_map<const Value*, std::vector<Touch>> touches_;
  std::vector<Work> works_;
};

// Gives each piece of work the stream where it can begin first.
void choose_streams(std::vector<Work>& works, size_t num_streams) {
  std::vector<int64_t> free(num_streams, 0);
  std::vector<size_t> counts(num_streams, 0);
  for (Work& work : works) {
    int64_t ready = 0;
    std::optional<size_t> nearest;
    for (const size_t before : work.dependencies) {
      if (works[before].end < ready) continue;
      ready = works[before].end;
      nearest = works[before].stream;
    }
    const auto begin_on = [&](size_t stream) { return std::max(free[stream], ready); };
    size_t best = work.is_alone ? 0 : nearest.value_or(0);
    for (size_t stream = 0; stream < num_streams && !work.is_alone; ++stream) {
      if (begin_on(stream) < begin_on(best)) best = stream;
    }
    work.stream = best;
    work.end = free[best] = begin_on(best) + 1;
    work.ordinal = ++counts[best];
  }
}

// Writes the choice into the program.
class StreamWriter {
 public:
  StreamWriter(Program& program, const std::vector<Work>& works)
      : program_(program), works_(works), aliases_(program) {
    size_t num_streams = 1;
    for (const Work& work : works) num_streams = std::max(num_streams, work.stream + 1);
    known_.assign(num_streams, std::vector<size_t>(num_streams, 0));
    for (size_t i = 0; i < works.size(); ++i) index_of_[works[i].op] = i;
    for (auto place = program.body().begin(); place != program.body().end(); ++place) {
      places_[place->get()] = place;
    }
    find_first_users();
    add_streams(num_streams);
  }

  void run() {
    const auto first = program_.body().begin();
    for (auto place = std::next(first, static_cast<int64_t>(streams_.size()));
         place != program_.body().end(); ++place) {
      if (const auto* allocate = (*place)->get_if<Allocate>()) {
        // Memory of the stream that is the first to use it.
        const auto user = first_users_.find(allocate->result);
        if (user != first_users_.end()) set_stream(place, works_[user->second].stream);
      }
      const auto found = index_of_.find(place->get());
      if (found != index_of_.end()) write(place, found->second);
    }
  }

 private:
  using Place = Region::iterator;

  void find_first_users() {
    for (size_t i = 0; i < works_.size(); ++i) {
      for_each_operand(*works_[i].op, [&](const Value* value, Access) {
        for (const Value* root : aliases_.roots(value)) first_users_.try_emplace(root, i);
      });
    }
  }

  // At the very begin: a stream of the pool waits for what was done so far.
  void add_streams(size_t num_streams) {
    const Place first = program_.body().begin();
    for (size_t stream = 0; stream < num_streams; ++stream) {
      Value* value = program_.add_value(StreamType{}, concat("stream", stream));
      if (stream == 0) {
        insert(first, CurrentStream{.result = value});
      } else {
        insert(first, PoolStream{.result = value});
      }
      streams_.push_back(value);
    }
  }

  void write(Place place, size_t index) {
    const Work& work = works_[index];
    set_stream(place, work.stream);
    std::vector<size_t>& known = known_[work.stream];
    // The latest first: what it has waited for needs no event.
    for (size_t i = work.dependencies.size(); i-- > 0;) {
      const size_t before = work.dependencies[i];
      const Work& other = works_[before];
      if (other.stream == work.stream || known[other.stream] >= other.ordinal) continue;
      insert(place, WaitEvent{.event = event_behind(before), .stream = streams_[work.stream]});
      for (size_t s = 0; s < known.size(); ++s) {
        known[s] = std::max(known[s], known_behind_[before][s]);
      }
    }
    known[work.stream] = work.ordinal;
    known_behind_[index] = known;
  }

  Value* event_behind(size_t index) {
    Value*& event = events_[index];
    if (event) return event;
    const Work& work = works_[index];
    event = program_.add_value(EventType{}, "done");
    insert(std::next(places_.at(work.op)),
           RecordEvent{.stream = streams_[work.stream], .result = event});
    return event;
  }

  void set_stream(Place place, size_t stream) {
    if (stream == current_) return;
    current_ = stream;
    insert(place, SetStream{.stream = streams_[stream]});
  }

  void insert(Place place, OpVariant payload) {
    auto op = std::make_unique<Op>(Op{std::move(payload), ""});
    for_each_result(*op, [&](Value* value, ResultKind) { value->set_producer(op.get()); });
    program_.body().insert(place, std::move(op));
  }

  Program& program_;
  const std::vector<Work>& works_;
  const AliasAnalysis aliases_;
  std::vector<Value*> streams_;
  // By stream and other stream: ordinal of the last work of the other that is done by then.
  std::vector<std::vector<size_t>> known_;
  std::unordered_map<size_t, std::vector<size_t>> known_behind_;
  std::unordered_map<size_t, Value*> events_;
  std::unordered_map<const Op*, size_t> index_of_;
  std::unordered_map<const Op*, Place> places_;
  std::unordered_map<const Value*, size_t> first_users_;
  size_t current_ = 0;
};

bool has_streams(const Program& program) {
  bool found = std::ranges::any_of(program.inputs(), [](const Value* input) {
    return std::holds_alternative<StreamType>(input->type());
  });
  for_each_op(program.body(), [&](const Op& op) { found |= op.info().orders_streams; });
  return found;
}

}  // namespace

void spread_streams(Program& program) {
  const std::optional<int64_t> num_streams = knob_integer(Knob::kSpreadStreams);
  const std::optional<Device> device = program.cuda_device();
  if (num_streams.value_or(1) < 2 || !device) return;
  if (has_streams(program) || is_one_graph(program)) return;
  std::vector<Work> works = WorkFinder(program, *device).take();
  choose_streams(works, static_cast<size_t>(std::min(*num_streams, kMostStreams)));
  if (std::ranges::all_of(works, [](const Work& work) { return work.stream == 0; })) return;
  StreamWriter(program, works).run();
}

}  // namespace hostjit
