// SPDX-License-Identifier: Apache-2.0
#include "ir/memory_verifier.h"

#include <algorithm>
#include <limits>

#include "ir/effects.h"
#include "ir/verification_error.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

// One piece of memory: that of an input, or made by an op.
struct Memory {
  const Value* value = nullptr;
  const Op* producer = nullptr;  // null for an input
  ResultKind kind = ResultKind::kOwned;
  bool in_init = false;
  size_t depth = 0;   // of regions around its producer
  int64_t first = 0;  // positions of ops, those of init first
  int64_t last = 0;
  int64_t first_use = kForever;  // by an op, through any alias; freeing is none
  int64_t last_use = 0;
  bool freed = false;
};

class MemoryVerifier {
 public:
  explicit MemoryVerifier(const Program& program) : program_(program) {}

  void run() {
    for (const Value* input : program_.inputs()) add_memory(input, nullptr, ResultKind::kOwned);
    in_init_ = true;
    for (const auto& op : program_.init()) verify_about(*op, [&] { visit(*op); });
    in_init_ = false;
    for (const auto& op : program_.body()) verify_about(*op, [&] { visit(*op); });
    for (size_t i = 0; i < program_.outputs().size(); ++i) visit_output(i);
    verify_plan();
  }

 private:
  void visit(const Op& op) {
    ++position_;
    for_each_named_operand(op, [&](const std::string& name, const Value* value, Access access) {
      use(op, name, value, access);
    });
    for (const auto& [read, written] : in_place_pairs(op)) add_handover(op, read, written);
    std::vector<size_t> aliased;
    for (const Value* operand : aliased_operands(op)) {
      const std::vector<size_t>& roots = roots_[operand];
      aliased.insert(aliased.end(), roots.begin(), roots.end());
    }
    std::ranges::sort(aliased);
    const auto duplicates = std::ranges::unique(aliased);
    aliased.erase(duplicates.begin(), duplicates.end());
    for_each_result(op, [&](const Value* value, ResultKind kind) {
      if (kind != ResultKind::kAlias && kind != ResultKind::kScalar) add_memory(value, &op, kind);
      std::vector<size_t>& roots = roots_[value];
      roots.insert(roots.end(), aliased.begin(), aliased.end());
    });
    for_each_region(op, [&](std::string_view, const NestedRegion& region) { visit(op, *region); });
  }

  // What a region and the op around it use of the memory outside is in use as long as the region
  // runs: over and over, in a loop.
  void visit(const Op& around, const Region& region) {
    const size_t first_inside = memories_.size();
    std::vector<size_t>& inside = used_inside_.emplace_back();
    for_each_operand(around, [&](const Value* value, Access) {
      inside.insert(inside.end(), roots_[value].begin(), roots_[value].end());
    });
    for (const auto& op : region) verify_about(*op, [&] { visit(*op); });
    ++position_;
    const std::vector<size_t> used = std::move(used_inside_.back());
    used_inside_.pop_back();
    for (const size_t root : used) {
      Memory& memory = memories_[root];
      if (root >= first_inside) continue;
      if (memory.last != kForever) memory.last = memory.last_use = position_;
      if (!used_inside_.empty()) used_inside_.back().push_back(root);
    }
  }

  void add_memory(const Value* value, const Op* producer, ResultKind kind) {
    roots_[value].push_back(memories_.size());
    memories_.push_back({.value = value,
                         .producer = producer,
                         .kind = kind,
                         .in_init = in_init_,
                         .depth = used_inside_.size(),
                         .first = position_,
                         .last = position_});
  }

  void use(const Op& op, const std::string& name, const Value* value, Access access) {
    const auto fail = [&](const std::string& found, const char* expected) {
      throw_error(concat(describe(op), ": '", name, "' is %", value->name(), ", ", found,
                         ", expected ", expected));
    };
    for (const size_t root : roots_[value]) {
      Memory& memory = memories_[root];
      // Freeing what ATen owns leaves memory alone that the value shares.
      if (access == Access::kFree && memory.value != value) continue;
      if (memory.freed && memory.value == value) fail("which was freed before", "live memory");
      if (memory.freed) {
        fail(concat("memory of %", memory.value->name(), ", which was freed before"),
             "live memory");
      }
      // What init made serves the calls that follow, so the body only reads it.
      const bool is_of_init = memory.in_init && !in_init_;
      memory.last = is_of_init ? kForever : position_;
      if (!used_inside_.empty()) used_inside_.back().push_back(root);
      if (access != Access::kFree) {
        memory.first_use = std::min(memory.first_use, position_);
        memory.last_use = memory.last;
      }
      if (!writes(access) && access != Access::kFree) continue;
      if (memory.kind == ResultKind::kConstant) {
        fail("memory of a constant", "memory that may change");
      }
      if (is_of_init) fail("memory of init", "memory that may change");
    }
    if (access == Access::kFree) free(op, name, value);
  }

  // Notes that `op` may write to memory that it reads, unless another operand refers to either.
  void add_handover(const Op& op, const Value* read, const Value* written) {
    const auto is_apart = [&](const Value* value) {
      const std::vector<size_t>& roots = roots_[value];
      if (roots.size() != 1 || memories_[roots.front()].value != value) return false;
      return std::ranges::count_if(operand_uses(op), [&](const OperandUse& use) {
               return std::ranges::count(roots_[use.value], roots.front()) > 0;
             }) == 1;
    };
    if (!is_apart(read) || !is_apart(written)) return;
    const size_t before = roots_[read].front();
    const size_t after = roots_[written].front();
    // Memory of an outer region is in use as long as this one runs.
    const size_t depth = used_inside_.size();
    if (memories_[before].depth != depth || memories_[after].depth != depth) return;
    handovers_.emplace(std::pair(before, after), position_);
  }

  // True when an op ends the use of one and begins that of the other, in place.
  bool is_handed_over(const Memory& before, const Memory& after) const {
    const std::pair key(static_cast<size_t>(&before - memories_.data()),
                        static_cast<size_t>(&after - memories_.data()));
    const auto found = handovers_.find(key);
    return found != handovers_.end() && before.last_use == found->second &&
           after.first_use == found->second && !before.in_init &&
           planned_offset(before) == planned_offset(after);
  }

  void free(const Op& op, const std::string& name, const Value* value) {
    const std::vector<size_t>& roots = roots_[value];
    const bool is_root = !roots.empty() && memories_[roots.front()].value == value;
    HOSTJIT_CHECK(is_root, describe(op), ": '", name, "' is %", value->name(),
                  ", a view, expected memory that an op allocated, or an input");
    HOSTJIT_CHECK(memories_[roots.front()].depth == used_inside_.size(), describe(op), ": '", name,
                  "' is %", value->name(), ", made outside of this region, ",
                  "expected memory that this region made");
    memories_[roots.front()].freed = true;
  }

  void visit_output(size_t i) {
    const Value* output = program_.outputs()[i];
    for (const size_t root : roots_[output]) {
      const Memory& memory = memories_[root];
      const auto require = [&](bool condition, const char* found) {
        HOSTJIT_CHECK(condition, "program '", program_.name(), "': output ", i, " is %",
                      output->name(), ", memory ", found,
                      ", expected memory that the caller may keep");
      };
      require(!memory.freed, "that was freed before");
      require(memory.kind != ResultKind::kConstant, "of a constant");
      require(!memory.in_init, "of init");
      require(planned_offset(memory) < 0, "planned in the arena");
    }
  }

  const ArenaPlan& arena_of(const Memory& memory) const {
    return program_.arena_of(memory.value->tensor_type());
  }

  // Bytes into the arena, or -1.
  static int64_t planned_offset(const Memory& memory) {
    const auto* allocate = memory.producer ? memory.producer->get_if<Allocate>() : nullptr;
    return allocate ? allocate->offset : -1;
  }

  void verify_plan() {
    for (const Memory& memory : memories_) {
      if (planned_offset(memory) < 0) continue;
      verify_about(*memory.producer, [&] { verify_placement(memory); });
    }
  }

  // Called in the order of first uses: keeps what is live by offset, and requires that `memory`
  // lies in the arena and apart from it.
  void verify_placement(const Memory& memory) {
    const ArenaPlan& arena = arena_of(memory);
    if (arena.blocks > 0) return verify_block(memory);
    const int64_t offset = planned_offset(memory);
    const TensorType& type = memory.value->tensor_type();
    HOSTJIT_CHECK(type.is_static(), describe(*memory.producer), ": %", memory.value->name(),
                  " has type ", to_string(memory.value->type()),
                  ", expected a static type for memory in an arena without blocks");
    const int64_t bytes = type.extent_in_bytes();
    const auto require = [&](bool condition, const std::string& expected) {
      HOSTJIT_CHECK(condition, describe(*memory.producer), ": %", memory.value->name(), " has ",
                    bytes, " bytes at offset ", offset, ", expected ", expected);
    };
    require(bytes <= arena.bytes && offset <= arena.bytes - bytes,
            concat("to lie in the arena of ", arena.bytes, " bytes"));
    require(offset % arena.alignment == 0,
            concat("an offset that is a multiple of ", arena.alignment));
    if (bytes > 0) place(memory, offset, bytes);
  }

  // The same where an offset is the number of a block, which is all of what is apart.
  void verify_block(const Memory& memory) {
    const int64_t block = planned_offset(memory);
    const int64_t num_blocks = arena_of(memory).blocks;
    HOSTJIT_CHECK(block < num_blocks, describe(*memory.producer), ": %", memory.value->name(),
                  " is in block ", block, ", expected one of the arena's ", num_blocks);
    place(memory, block, 1);
  }

  void place(const Memory& memory, int64_t offset, int64_t bytes) {
    const bool is_block = arena_of(memory).blocks > 0;
    auto& [live, last_uses] = placements_[&arena_of(memory)];
    const auto require = [&](bool condition, const std::string& expected) {
      const std::string found = is_block ? concat("is in block ", offset)
                                         : concat("has ", bytes, " bytes at offset ", offset);
      HOSTJIT_CHECK(condition, describe(*memory.producer), ": %", memory.value->name(), " ", found,
                    ", expected ", expected);
    };
    while (!last_uses.empty() && last_uses.begin()->first < memory.first) {
      const Memory* ended = last_uses.begin()->second;
      const auto at = live.find(planned_offset(*ended));
      if (at != live.end() && at->second.memory == ended) live.erase(at);
      last_uses.erase(last_uses.begin());
    }
    const auto same = live.find(offset);
    if (same != live.end() && is_handed_over(*same->second.memory, memory)) live.erase(same);
    const auto require_apart = [&](int64_t other_offset, const Placed& other) {
      if (offset + bytes <= other_offset || other.end <= offset) return;
      const std::string live = is_block ? ", which is live"
                                        : concat(", which is live with ", other.end - other_offset,
                                                 " bytes at offset ", other_offset);
      require(false, concat("memory apart from %", other.memory->value->name(), live));
    };
    const auto after = live.lower_bound(offset);
    if (after != live.end()) require_apart(after->first, after->second);
    if (after != live.begin()) require_apart(std::prev(after)->first, std::prev(after)->second);
    live.emplace(offset, Placed{&memory, offset + bytes});
    last_uses.emplace(memory.last, &memory);
  }

  struct Placed {
    const Memory* memory;
    int64_t end;  // bytes into the arena
  };

  const Program& program_;
  bool in_init_ = false;
  int64_t position_ = 0;
  std::vector<Memory> memories_;  // in the order of position
  // Per region under way, memories used in it: positions in memories_.
  std::vector<std::vector<size_t>> used_inside_;
  // Positions in memories_ of what a value may share; its own memory, if it has any, comes first.
  std::unordered_map<const Value*, std::vector<size_t>> roots_;
  std::map<std::pair<size_t, size_t>, int64_t> handovers_;  // memories to position
  struct Placements {
    std::map<int64_t, Placed> live;                   // by offset
    std::multimap<int64_t, const Memory*> last_uses;  // by position
  };
  std::map<const ArenaPlan*, Placements> placements_;
};

}  // namespace

void verify_memory(const Program& program) { MemoryVerifier(program).run(); }

}  // namespace hostjit
