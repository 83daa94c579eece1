// SPDX-License-Identifier: Apache-2.0
#include "codegen/storage.h"

#include <algorithm>
#include <ranges>

#include "codegen/header_operands.h"
#include "codegen/literal_bytes.h"
#include "ir/visitor.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

constexpr int64_t kConstantAlignment = 64;

TensorSpec make_spec(const TensorType& type) {
  if (!type.is_static()) return {type.dtype, type.device, {}, {}};
  return {type.dtype, type.device, type.sizes(), type.static_strides()};
}

int64_t extent_of(const Value* value) {
  const TensorType& type = value->tensor_type();
  return type.is_static() ? type.extent_in_bytes() : Storage::kUnknown;
}

// Elements from one index of the first dim to the next; nullopt where a symbol decides.
std::optional<int64_t> first_stride(const TensorType& type) {
  if (!type.strides.empty()) {
    return type.strides[0].is_constant() ? std::optional(type.strides[0].value) : std::nullopt;
  }
  int64_t stride = 1;
  for (const Dim& size : type.dims | std::views::drop(1)) {
    if (!size.is_constant()) return std::nullopt;
    stride *= size.value;
  }
  return stride;
}

NodeInfo make_node_info(const Op& op) {
  std::string name(op.name());
  if (const auto* call = op.get_if<AtenCall>()) name += " " + call->target;
  if (const auto* launch = op.get_if<LaunchKernel>()) name += " @" + launch->kernel;
  return {std::move(name), op.location};
}

}  // namespace

bool may_overlap(const Storage& a, const Storage& b) {
  if (a.extent == 0 || b.extent == 0) return false;
  if (a.base == b.base && a.index == b.index) {
    // Blocks of buffers that live together are apart.
    if (a.block != b.block) return false;
    const std::optional<ByteRange> left = a.bytes();
    const std::optional<ByteRange> right = b.bytes();
    return !left || !right || left->overlaps(*right);
  }
  if (a.is_shared || b.is_shared) return true;
  // Two inputs may be views of one tensor; memory that this program owns is its own.
  return a.base == MemoryBase::kInput && b.base == MemoryBase::kInput;
}

bool StoragePlan::may_overlap_in_time(const Storage& a, const Storage& b) const {
  if (a.extent == 0 || b.extent == 0) return false;
  const bool are_blocks = a.base == MemoryBase::kDeviceArena && b.base == a.base && a.block >= 0;
  if (!are_blocks || a.block == b.block) return may_overlap(a, b);
  return !device_blocks_->live_together(static_cast<size_t>(a.block - num_blocks_),
                                        static_cast<size_t>(b.block - num_blocks_));
}

StoragePlan::StoragePlan(const Program& program)
    : symbols_(program), stream_numbers_(program), is_symbolic_(program.is_symbolic()) {
  layout_.num_streams = stream_numbers_.num_streams();
  layout_.num_events = stream_numbers_.num_events();
  layout_.arena_bytes = program.arena().bytes;
  layout_.alignment = program.arena().alignment;
  num_blocks_ = program.arena().blocks;
  if (program.device_arena().blocks > 0) device_blocks_.emplace(program, *program.cuda_device());
  if (const auto device = program.cuda_device()) layout_.device = int32_t{device->index};
  layout_.device_arena_bytes = program.device_arena().bytes;
  device_alignment_ = program.device_arena().alignment;
  layout_.graphs_always = is_enabled(Knob::kCudaGraphsAlways);
  layout_.nvtx = is_enabled(Knob::kNvtx);
  for (const Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) {
      for_each_operand(op, [&](const Value* value, Access access) {
        num_uses_[value] += access != Access::kFree;
      });
    });
  }
  for (const Value* output : program.outputs()) ++num_uses_[output];

  place_inputs(program);
  place_region(program.init(), /*is_init=*/true);
  place_region(program.body(), /*is_init=*/false);
  add_headers(program, program.init());
  add_headers(program, program.body());
  plan_outputs(program);
}

const Storage& StoragePlan::of(const Value* value) const {
  const auto found = storages_.find(value);
  HOSTJIT_ICHECK(found != storages_.end(), "%", value->name(), " has no memory");
  return found->second;
}

int64_t StoragePlan::slot_of(const Value* value) const {
  const auto found = slots_.find(value);
  return found == slots_.end() ? -1 : found->second;
}

void StoragePlan::place_inputs(const Program& program) {
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    const Value* input = program.inputs()[i];
    if (!input->is_tensor()) continue;
    storages_[input] = {MemoryBase::kInput,
                        static_cast<int64_t>(i),
                        0,
                        extent_of(input),
                        /*is_shared=*/false,
                        input};
  }
}

void StoragePlan::place_region(const Region& region, bool is_init) {
  for (const auto& op : region) {
    nodes_[op.get()] = static_cast<int64_t>(layout_.nodes.size());
    layout_.nodes.push_back(make_node_info(*op));
    if (is_init) {
      for_each_result(*op, [&](const Value* value, ResultKind) { init_values_.insert(value); });
    }
    if (const auto* allocate = op->get_if<Allocate>()) place(*allocate, is_init);
    if (const auto* constant = op->get_if<Constant>()) place(*constant);
    if (const auto* view = op->get_if<View>()) place(*view);
    if (const auto* select = op->get_if<Select>()) place(*select);
    if (const auto* call = op->get_if<AtenCall>()) place(*call, is_init);
    for_each_region(
        *op, [&](std::string_view, const NestedRegion& nested) { place_region(*nested, is_init); });
  }
}

void StoragePlan::place(const Allocate& op, bool is_init) {
  Storage storage{MemoryBase::kArena, 0, op.offset, extent_of(op.result), false, op.result};
  const bool is_on_device = op.result->tensor_type().device.type != DeviceType::kCPU;
  if (is_on_device) storage.base = MemoryBase::kDeviceArena;
  if (is_symbolic_ && op.offset >= 0) {
    storage.block = op.offset + (is_on_device ? num_blocks_ : 0);
    storage.offset = 0;
  }
  if (op.offset < 0) {
    storage.base = MemoryBase::kSlot;
    storage.offset = 0;
    storage.index = slots_[op.result] =
        add_slot(is_init ? SlotKind::kFrame : SlotKind::kCall, 0, op.result);
  }
  storages_[op.result] = storage;
}

void StoragePlan::place(const Constant& op) {
  const TensorType& type = op.result->tensor_type();
  std::vector<std::byte>& block = layout_.constants;
  block.resize((block.size() + kConstantAlignment - 1) / kConstantAlignment * kConstantAlignment);
  const auto offset = static_cast<int64_t>(block.size());
  for (const Literal& literal : op.values) {
    const std::vector<std::byte> bytes = literal_bytes(literal, type.dtype);
    block.insert(block.end(), bytes.begin(), bytes.end());
  }
  storages_[op.result] = {MemoryBase::kConstant,  0,     offset,
                          type.extent_in_bytes(), false, op.result};
}

void StoragePlan::place(const View& op) {
  Storage storage = of(op.source);
  const int64_t bytes = size_in_bytes(op.result->tensor_type().dtype);
  if (op.offset.is_constant()) {
    storage.offset += op.offset.value * bytes;
  } else {
    storage.terms.push_back({op.offset.symbol, bytes});
  }
  storage.extent = extent_of(op.result);
  storages_[op.result] = storage;
}

void StoragePlan::place(const Select& op) {
  Storage storage = of(op.source);
  const TensorType& type = op.source->tensor_type();
  storage.reach = storage.bytes();
  const std::optional<int64_t> stride = first_stride(type);
  storage.terms.push_back({.symbol = {},
                           .bytes = stride.value_or(1) * size_in_bytes(type.dtype),
                           .select = &op,
                           .stride_is_known = stride.has_value()});
  storage.extent = extent_of(op.result);
  storages_[op.result] = storage;
}

void StoragePlan::place(const AtenCall& op, bool is_init) {
  for (const Value* result : op.results) {
    if (num_uses_[result] == 0) continue;
    const int64_t slot = add_slot(is_init ? SlotKind::kFrame : SlotKind::kCall, 0, result);
    slots_[result] = slot;
    storages_[result] = {MemoryBase::kSlot,
                         slot,
                         0,
                         extent_of(result),
                         /*is_shared=*/!op.aliases.empty(),
                         result};
  }
}

void StoragePlan::add_headers(const Program& program, const Region& region) {
  for_each_op(region, [&](const Op& op) {
    for (const Value* value : header_operands(op, *this)) require_header(value);
    if (const auto* call = op.get_if<AtenCall>()) add_aten_call(*call);
    if (const auto* launch = op.get_if<LaunchKernel>()) {
      launches_.add(op, *launch, program.kernels().at(launch->kernel), *this, layout_);
    }
  });
}

void StoragePlan::add_aten_call(const AtenCall& op) {
  aten_calls_[&op] = static_cast<int64_t>(layout_.aten_calls.size());
  AtenCallSpec spec{op.target, op.arguments, {}, {}, {}};
  for (const auto* operands : {&op.inputs, &op.mutated}) {
    for (const Value* operand : *operands) {
      spec.operand_is_tensor.push_back(operand->is_tensor());
      spec.operand_is_f64.push_back(std::holds_alternative<F64Type>(operand->type()));
    }
  }
  for (const Value* result : op.returned()) {
    spec.result_slots.push_back(result == nullptr ? -1 : slot_of(result));
  }
  layout_.aten_calls.push_back(std::move(spec));
}

void StoragePlan::plan_outputs(const Program& program) {
  // From the last on: the last output of a slot moves it, those before share it.
  std::unordered_map<int64_t, bool> moved;
  for (size_t i = program.outputs().size(); i-- > 0;) {
    const Value* value = program.outputs()[i];
    OutputPlan plan{value, OutputKind::kScalar, -1};
    if (value->is_tensor()) {
      const Storage& storage = of(value);
      if (storage.root == value && storage.base == MemoryBase::kInput) {
        plan.kind = OutputKind::kInput;
      } else if (belongs_to_frame(storage)) {
        plan.kind = OutputKind::kCopy;
        require_header(value);
        plan.slot = add_slot(SlotKind::kCall, 0, value);
      } else {
        require_header(value);
        plan.slot = slot_of(value);
        plan.kind = moved[plan.slot] ? OutputKind::kShareSlot : OutputKind::kMoveSlot;
        moved[plan.slot] = true;
      }
    }
    outputs_.insert(outputs_.begin(), plan);
  }
}

bool StoragePlan::belongs_to_frame(const Storage& storage) const {
  return storage.base == MemoryBase::kArena || storage.base == MemoryBase::kDeviceArena ||
         storage.base == MemoryBase::kConstant ||
         (storage.base == MemoryBase::kSlot && slot(storage.index).kind == SlotKind::kFrame);
}

int64_t StoragePlan::add_slot(SlotKind kind, int64_t offset, const Value* value) {
  layout_.slots.push_back({kind, offset, make_spec(value->tensor_type())});
  slot_values_.push_back(value);
  return static_cast<int64_t>(layout_.slots.size()) - 1;
}

void StoragePlan::require_header(const Value* value) {
  const Storage& storage = of(value);
  const bool is_input = storage.base == MemoryBase::kInput && storage.root == value;
  if (is_input || slots_.contains(value)) return;
  if (storage.is_selected()) {
    require_header(storage.root);
    slots_[value] =
        add_slot(init_values_.contains(value) ? SlotKind::kFrame : SlotKind::kCall, 0, value);
    return;
  }
  switch (storage.base) {
    case MemoryBase::kArena:
      slots_[value] = add_slot(SlotKind::kArena, storage.offset, value);
      break;
    case MemoryBase::kDeviceArena:
      slots_[value] = add_slot(SlotKind::kDeviceArena, storage.offset, value);
      break;
    case MemoryBase::kConstant:
      slots_[value] = add_slot(SlotKind::kConstant, storage.offset, value);
      break;
    case MemoryBase::kInput:
    case MemoryBase::kSlot:
      slots_[value] =
          add_slot(init_values_.contains(value) ? SlotKind::kFrame : SlotKind::kCall, 0, value);
      break;
  }
}

}  // namespace hostjit
