// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/launch_plan.h"
#include "ir/row_symbols.h"
#include "ir/stream_numbers.h"
#include "passes/alias_analysis.h"
#include "passes/arena_blocks.h"
#include "runtime/abi.h"

// Where every tensor of a program lives, decided before any code is emitted. Nothing here depends
// on what a symbol is: the code and the slots serve all rows.

namespace hostjit {

enum class MemoryBase : uint8_t {
  kInput,        // TensorArg::data of input `index`
  kArena,        // Frame::arena
  kDeviceArena,  // Frame::device_arena
  kConstant,     // the constants that the module embeds
  kSlot,         // Frame::slot_data of slot `index`
};

// The memory of a tensor value: `offset` bytes after its base, `extent` bytes long. Views are
// folded into the offset.
struct Storage {
  static constexpr int64_t kUnknown = -1;

  MemoryBase base = MemoryBase::kArena;
  int64_t index = 0;
  int64_t offset = 0;
  int64_t extent = 0;  // or kUnknown, when a symbol decides
  // An ATen call that made this memory may have returned an operand's.
  bool is_shared = false;
  // The value at the base: an input, or the result of allocate, constant or aten_call.
  const Value* root = nullptr;
  // The block of an arena after whose begin `offset` counts, as they are in RowContents::table; -1
  // in a static program.
  int64_t block = -1;
  // To be added to `offset`: symbols, or indices of `select`, each times so many bytes. Where
  // symbols decide how far apart rows are, `bytes` are those of an element.
  struct Term {
    std::string symbol;
    int64_t bytes = 0;
    const Select* select = nullptr;
    bool stride_is_known = true;
  };
  std::vector<Term> terms = {};
  // Of memory that is selected: what it is selected from, if that is known.
  std::optional<ByteRange> reach = std::nullopt;

  // Whether offset and extent say it all.
  bool is_known() const { return terms.empty() && extent != kUnknown; }
  // Whether it begins elsewhere each time that the code which selects it runs.
  bool is_selected() const { return std::ranges::any_of(terms, &Term::select); }
  // The bytes from the base on that it lies in; nullopt where symbols decide.
  std::optional<ByteRange> bytes() const {
    return is_known() ? std::optional(ByteRange{offset, offset + extent}) : reach;
  }
};

// True unless the two, operands of one op, cannot share a byte in any row.
bool may_overlap(const Storage& a, const Storage& b);

// How one output leaves a call.
enum class OutputKind : uint8_t {
  kInput,      // a reference to the tensor of an input
  kMoveSlot,   // the tensor of a slot of the call
  kShareSlot,  // a reference to it; another output moves it
  kCopy,       // memory that does not outlive the call is copied to the tensor of a slot
  kScalar,     // int64_t or double bits
};

struct OutputPlan {
  const Value* value = nullptr;
  OutputKind kind = OutputKind::kScalar;
  int64_t slot = -1;
};

class StoragePlan {
 public:
  explicit StoragePlan(const Program& program);

  // False for a result of an ATen call that nobody uses: the call itself drops it.
  bool has_memory(const Value* value) const { return storages_.contains(value); }

  const Storage& of(const Value* value) const;
  // The slot that holds an at::Tensor header of the value, or -1. Inputs bring their own.
  int64_t slot_of(const Value* value) const;
  const SlotSpec& slot(int64_t index) const { return layout_.slots[index]; }
  // Position in FrameLayout::nodes.
  int64_t node_of(const Op& op) const { return nodes_.at(&op); }
  // Position in FrameLayout::aten_calls.
  int64_t aten_call_of(const AtenCall& call) const { return aten_calls_.at(&call); }
  const LaunchPlan& launches() const { return launches_; }
  // As may_overlap, of operands of two ops: memory may have been another buffer's before.
  bool may_overlap_in_time(const Storage& a, const Storage& b) const;
  const StreamNumbers& stream_numbers() const { return stream_numbers_; }
  const std::vector<OutputPlan>& outputs() const { return outputs_; }
  const FrameLayout& layout() const { return layout_; }
  // Of Frame::device_arena, in bytes.
  int64_t device_alignment() const { return device_alignment_; }
  // Of each slot: a value of the type that it has.
  const std::vector<const Value*>& slot_values() const { return slot_values_; }
  const RowSymbols& symbols() const { return symbols_; }
  // False for a program without rows: index values are not in a table.
  bool is_symbolic() const { return is_symbolic_; }

 private:
  void place_inputs(const Program& program);
  void place_region(const Region& region, bool is_init);
  void place(const Allocate& op, bool is_init);
  void place(const Constant& op);
  void place(const View& op);
  void place(const Select& op);
  void place(const AtenCall& op, bool is_init);
  void add_headers(const Program& program, const Region& region);
  void add_aten_call(const AtenCall& op);
  void plan_outputs(const Program& program);
  // True for memory that a later call uses again.
  bool belongs_to_frame(const Storage& storage) const;

  int64_t add_slot(SlotKind kind, int64_t offset, const Value* value);
  // Gives the value an at::Tensor header unless it has one.
  void require_header(const Value* value);

  FrameLayout layout_;
  RowSymbols symbols_;
  StreamNumbers stream_numbers_;
  bool is_symbolic_;
  int64_t device_alignment_ = 1;
  int64_t num_blocks_ = 0;  // of the CPU's arena
  std::optional<ArenaBlocks> device_blocks_;
  std::vector<const Value*> slot_values_;
  std::unordered_map<const Value*, Storage> storages_;
  std::unordered_map<const Value*, int64_t> slots_;
  std::unordered_map<const Value*, int64_t> num_uses_;
  std::unordered_set<const Value*> init_values_;
  std::unordered_map<const Op*, int64_t> nodes_;
  std::unordered_map<const AtenCall*, int64_t> aten_calls_;
  LaunchPlan launches_;
  std::vector<OutputPlan> outputs_;
};

}  // namespace hostjit
