// SPDX-License-Identifier: Apache-2.0
#include "codegen/row_maker.h"

#include <algorithm>

#include "codegen/storage.h"
#include "passes/plan_memory.h"

namespace hostjit {

RowMaker::RowMaker(const Program& program)
    : symbols_(program),
      substituted_(program),
      arena_(make_area(program, Device{}, program.arena().alignment)) {
  if (program.device_arena().blocks > 0) {
    device_arena_ = make_area(program, *program.cuda_device(), kDeviceArenaAlignment);
  }
  add_slots(StoragePlan(program));
}

void RowMaker::add_slots(const StoragePlan& storage) {
  for (size_t i = 0; i < storage.layout().slots.size(); ++i) {
    const Value* value = storage.slot_values()[i];
    Slot slot{storage.layout().slots[i], nullptr, -1, {}};
    if (!value->tensor_type().is_static()) slot.type = &substituted_.find(value)->tensor_type();
    if (slot.spec.kind == SlotKind::kArena || slot.spec.kind == SlotKind::kDeviceArena) {
      const Storage& place = storage.of(value);
      slot.block = place.block;
      for (const Storage::Term& term : place.terms) {
        slot.terms.push_back({symbols_.at(term.symbol), term.bytes});
      }
    }
    slots_.push_back(std::move(slot));
  }
}

RowMaker::Area RowMaker::make_area(const Program& program, Device device, int64_t alignment) {
  Area area{ArenaBlocks(program, device), alignment, {}};
  for (const ArenaBlocks::Buffer& buffer : area.blocks.buffers()) {
    Value* value = substituted_.find(buffer.value);
    area.buffers.push_back(
        {&value->tensor_type(), value->producer()->get_if<Allocate>(), buffer.block});
  }
  return area;
}

RowContents RowMaker::make(std::span<const int64_t> sizes) {
  RowContents row;
  row.table = symbols_.evaluate(sizes);
  substituted_.substitute(row.table);
  substituted_.verify();
  Program& program = substituted_.program();
  program.set_arena(arena_.place(row.table));
  row.arena_bytes = program.arena().bytes;
  if (device_arena_) {
    program.set_device_arena(device_arena_->place(row.table));
    row.device_arena_bytes = program.device_arena().bytes;
  }
  row.slots.reserve(slots_.size());
  for (const Slot& slot : slots_) row.slots.push_back(fill(slot, row));
  return row;
}

ArenaPlan RowMaker::Area::place(std::vector<int64_t>& table) {
  const ArenaPlacement placement = blocks.place(bytes_of_blocks(), alignment);
  table.insert(table.end(), placement.offsets.begin(), placement.offsets.end());
  for (const Buffer& buffer : buffers) buffer.allocate->offset = placement.offsets[buffer.block];
  ArenaPlan plan;
  plan.bytes = placement.bytes;
  plan.alignment = alignment;
  return plan;
}

std::vector<int64_t> RowMaker::Area::bytes_of_blocks() const {
  std::vector<int64_t> bytes(blocks.size(), 0);
  for (const Buffer& buffer : buffers) {
    bytes[buffer.block] = std::max(bytes[buffer.block], buffer.type->extent_in_bytes());
  }
  return bytes;
}

ArenaPlan RowMaker::Area::with_bound(ArenaPlan plan) const {
  plan.lower_bound = blocks.lower_bound(bytes_of_blocks());
  return plan;
}

Program RowMaker::clone_program(const Program& original) const {
  Program program = substituted_.clone(original);
  program.set_arena(arena_.with_bound(program.arena()));
  if (device_arena_) program.set_device_arena(device_arena_->with_bound(program.device_arena()));
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
