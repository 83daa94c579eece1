// SPDX-License-Identifier: Apache-2.0
#include "passes/abstract_machine.h"

#include <algorithm>

#include "ir/effects.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

constexpr uint8_t kGarbage = 0xCD;
constexpr uint8_t kFreed = 0xDD;

uint64_t mix(uint64_t seed, uint64_t value) {
  uint64_t hash = (seed ^ value) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 29;
  return hash * 0xBF58476D1CE4E5B9u + 1;
}

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 1;
  for (const char c : text) hash = mix(hash, static_cast<uint8_t>(c));
  return hash;
}

}  // namespace

AbstractMachine::AbstractMachine(const Program& program)
    : program_(program), arena_(program.arena().bytes, kGarbage) {
  for (const auto& op : program.init()) run(*op, frame_memory_);
}

std::vector<AbstractMachine::Bytes> AbstractMachine::call(std::vector<Bytes>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) addresses_[program_.inputs()[i]] = inputs[i].data();
  std::deque<Bytes> memory;
  live_.clear();
  for (const auto& op : program_.body()) run(*op, memory);
  std::vector<Bytes> outputs;
  for (const Value* output : program_.outputs()) outputs.push_back(read(output));
  return outputs;
}

void AbstractMachine::run(const Op& op, std::deque<Bytes>& memory) {
  if (const auto* deallocate = op.get_if<Deallocate>()) {
    const Value* buffer = deallocate->buffer;
    live_.erase(buffer);
    // Another buffer may have taken the memory over, in place.
    const auto is_there = [&](const Value* other) {
      return addresses_.at(other) == addresses_.at(buffer);
    };
    const bool has_memory = !buffer->producer() || buffer->producer()->is<Allocate>();
    if (has_memory && std::ranges::none_of(live_, is_there)) {
      std::fill_n(addresses_.at(buffer), buffer->tensor_type().extent_in_bytes(), kFreed);
    }
    return;
  }
  if (const auto* constant = op.get_if<IndexConstant>()) {
    integers_[constant->result] = constant->value;
    return;
  }
  if (has_regions(op)) return run_regions(op, memory);
  uint64_t seed = hash_of(op.location);
  if (!is_removable(op)) seed = mix(seed, ++num_effects_);
  const std::vector<OperandUse> uses = operand_uses(op);
  for (const OperandUse& use : uses) {
    if (!reads(use.access)) continue;
    for (const uint8_t byte : read(use.value)) seed = mix(seed, byte);
  }
  for (const OperandUse& use : uses) {
    if (writes(use.access)) write(use.value, seed = mix(seed, 1));
  }
  for (const Value* result : results_of(op)) make_result(op, result, seed, memory);
}

void AbstractMachine::run_regions(const Op& op, std::deque<Bytes>& memory) {
  const auto run_all = [&](const Region& region) {
    for (const auto& nested : region) run(*nested, memory);
  };
  const auto holds = [&](const Value* condition) { return read(condition).front() % 2 == 1; };
  if (const auto* loop = op.get_if<For>()) {
    const int64_t end = integers_.at(loop->end);
    for (int64_t i = integers_.at(loop->begin); i < end; i += loop->step) {
      integers_[loop->index] = i;
      run_all(*loop->body);
    }
  } else if (const auto* branch = op.get_if<If>()) {
    run_all(holds(branch->condition) ? *branch->then : *branch->otherwise);
  } else if (const auto* loop = op.get_if<While>()) {
    for (int i = 0; i < 4 && holds(loop->condition); ++i) run_all(*loop->body);
  }
}

uint8_t* AbstractMachine::new_memory(const Value* value, std::deque<Bytes>& memory) {
  memory.emplace_back(value->tensor_type().extent_in_bytes() + 1, kGarbage);
  return addresses_[value] = memory.back().data();
}

void AbstractMachine::make_result(const Op& op, const Value* result, uint64_t seed,
                                  std::deque<Bytes>& memory) {
  const std::vector<Value*> aliased = aliased_operands(op);
  if (const auto* view = op.get_if<View>()) {
    const int64_t bytes = view->offset.value * size_in_bytes(result->tensor_type().dtype);
    addresses_[result] = addresses_.at(view->source) + bytes;
  } else if (const auto* select = op.get_if<Select>()) {
    const TensorType& type = select->source->tensor_type();
    const int64_t offset = integers_.at(select->index) * type.strides[0].value;
    addresses_[result] = addresses_.at(select->source) + offset * size_in_bytes(type.dtype);
  } else if (const auto* allocate = op.get_if<Allocate>(); allocate && allocate->offset >= 0) {
    addresses_[result] = arena_.data() + allocate->offset;
    if (result->tensor_type().extent_in_bytes() > 0) live_.insert(result);
  } else if (!aliased.empty()) {
    addresses_[result] = addresses_.at(aliased.front());
  } else {
    new_memory(result, memory);
    if (!allocate) write(result, seed);
  }
}

std::vector<uint8_t*> AbstractMachine::elements(const Value* value) const {
  const TensorType& type = value->tensor_type();
  const std::vector<int64_t> sizes = type.sizes();
  const std::vector<int64_t> strides = type.static_strides();
  std::vector<uint8_t*> result;
  for (int64_t i = 0; i < type.num_elements(); ++i) {
    int64_t offset = 0;
    int64_t rest = i;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      offset += rest % sizes[dim] * strides[dim];
      rest /= sizes[dim];
    }
    result.push_back(addresses_.at(value) + offset * size_in_bytes(type.dtype));
  }
  return result;
}

AbstractMachine::Bytes AbstractMachine::read(const Value* value) const {
  Bytes bytes;
  if (!value->is_tensor()) return bytes;
  const int64_t size = size_in_bytes(value->tensor_type().dtype);
  for (const uint8_t* element : elements(value)) bytes.insert(bytes.end(), element, element + size);
  return bytes;
}

void AbstractMachine::write(const Value* value, uint64_t seed) {
  const int64_t size = size_in_bytes(value->tensor_type().dtype);
  for (uint8_t* element : elements(value)) {
    seed = mix(seed, 2);
    for (int64_t byte = 0; byte < size; ++byte) {
      element[byte] = static_cast<uint8_t>(seed >> (8 * (byte % 8)));
    }
  }
}

}  // namespace hostjit
