// SPDX-License-Identifier: Apache-2.0
#include "codegen/row_maker.h"

#include <algorithm>

#include "codegen/storage.h"

namespace hostjit {

RowMaker::RowMaker(const Program& program)
    : symbols_(program),
      substituted_(program),
      blocks_(program),
      alignment_(program.arena().alignment) {
  add_slots(StoragePlan(program));
  add_buffers();
}

void RowMaker::add_slots(const StoragePlan& storage) {
  for (size_t i = 0; i < storage.layout().slots.size(); ++i) {
    const Value* value = storage.slot_values()[i];
    Slot slot{storage.layout().slots[i], nullptr, -1, {}};
    if (!value->tensor_type().is_static()) slot.type = &substituted_.find(value)->tensor_type();
    if (slot.spec.kind == SlotKind::kArena) {
      const Storage& place = storage.of(value);
      slot.block = place.block;
      for (const Storage::Term& term : place.terms) {
        slot.terms.push_back({symbols_.at(term.symbol), term.bytes});
      }
    }
    slots_.push_back(std::move(slot));
  }
}

void RowMaker::add_buffers() {
  for (const ArenaBlocks::Buffer& buffer : blocks_.buffers()) {
    Value* value = substituted_.find(buffer.value);
    buffers_.push_back(
        {&value->tensor_type(), value->producer()->get_if<Allocate>(), buffer.block});
  }
}

RowContents RowMaker::make(std::span<const int64_t> sizes) {
  RowContents row;
  row.table = symbols_.evaluate(sizes);
  substituted_.substitute(row.table);
  substituted_.verify();
  place_buffers(row);
  row.slots.reserve(slots_.size());
  for (const Slot& slot : slots_) row.slots.push_back(fill(slot, row));
  return row;
}

void RowMaker::place_buffers(RowContents& row) {
  const ArenaPlacement placement = blocks_.place(bytes_of_blocks(), alignment_);
  row.arena_bytes = placement.bytes;
  row.table.insert(row.table.end(), placement.offsets.begin(), placement.offsets.end());
  for (const Buffer& buffer : buffers_) buffer.allocate->offset = placement.offsets[buffer.block];
  ArenaPlan plan;
  plan.bytes = placement.bytes;
  plan.alignment = alignment_;
  substituted_.program().set_arena(plan);
}

std::vector<int64_t> RowMaker::bytes_of_blocks() const {
  std::vector<int64_t> bytes(blocks_.size(), 0);
  for (const Buffer& buffer : buffers_) {
    bytes[buffer.block] = std::max(bytes[buffer.block], buffer.type->extent_in_bytes());
  }
  return bytes;
}

Program RowMaker::clone_program(const Program& original) const {
  Program program = substituted_.clone(original);
  ArenaPlan plan = program.arena();
  plan.lower_bound = blocks_.lower_bound(bytes_of_blocks());
  program.set_arena(plan);
  return program;
}

SlotSpec RowMaker::fill(const Slot& slot, const RowContents& row) const {
  SlotSpec spec = slot.spec;
  if (slot.type) {
    spec.type.sizes = slot.type->sizes();
    spec.type.strides = slot.type->static_strides();
  }
  if (slot.block >= 0) spec.offset += row.table[symbols_.size() + slot.block];
  for (const Slot::Term& term : slot.terms) spec.offset += row.table[term.symbol] * term.bytes;
  return spec;
}

}  // namespace hostjit
