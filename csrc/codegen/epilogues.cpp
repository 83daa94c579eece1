// SPDX-License-Identifier: Apache-2.0
#include "codegen/epilogues.h"

#include <algorithm>
#include <optional>

namespace hostjit {
namespace {

const Value* result_of_product(const Op& op) {
  if (const auto* linear = op.get_if<Linear>()) return linear->out;
  if (const auto* matmul = op.get_if<Matmul>()) return matmul->out;
  if (const auto* addmm = op.get_if<Addmm>()) return addmm->out;
  return nullptr;
}

// Places and frees memory of the arena, which takes no code.
bool is_bookkeeping(const Op& op, const StoragePlan& storage) {
  const auto is_planned = [&](const Value* value) {
    return storage.has_memory(value) && storage.of(value).base == MemoryBase::kArena;
  };
  if (const auto* allocate = op.get_if<Allocate>()) return is_planned(allocate->result);
  if (const auto* deallocate = op.get_if<Deallocate>()) return is_planned(deallocate->buffer);
  return false;
}

bool is_same_memory(const Storage& a, const Storage& b) {
  return a.base == MemoryBase::kArena && b.base == MemoryBase::kArena && a.block == b.block &&
         a.offset == b.offset && a.extent == b.extent && a.is_known() && b.is_known();
}

// Its place among the inputs of the launch.
std::optional<unsigned> continued(const LaunchKernel& launch, const Value* result,
                                  const StoragePlan& storage) {
  const bool is_plain = launch.grid.empty() && launch.errors.empty() && launch.in_out.empty() &&
                        launch.outputs.size() == 1;
  const auto found = std::ranges::find(launch.inputs, result);
  if (!is_plain || found == launch.inputs.end()) return std::nullopt;
  if (!is_same_memory(storage.of(result), storage.of(launch.outputs[0]))) return std::nullopt;
  const auto operand = static_cast<unsigned>(found - launch.inputs.begin());
  bool is_in_place = false;
  for (size_t i = 0; i < launch.in_place.size(); i += 2) {
    is_in_place = is_in_place || launch.in_place[i] == operand;
  }
  for (size_t i = 0; i < launch.inputs.size(); ++i) {
    if (i != operand && may_overlap(storage.of(launch.inputs[i]), storage.of(result))) {
      return std::nullopt;
    }
  }
  return is_in_place ? std::optional(operand) : std::nullopt;
}

}  // namespace

std::vector<Epilogue> find_epilogues(const Program& program, const StoragePlan& storage) {
  std::vector<Epilogue> found;
  if (storage.is_symbolic()) return found;
  const Op* product = nullptr;
  for (const auto& op : program.body()) {
    if (result_of_product(*op) != nullptr) {
      product = op.get();
    } else if (const auto* launch = op->get_if<LaunchKernel>()) {
      if (product != nullptr) {
        const auto operand = continued(*launch, result_of_product(*product), storage);
        if (operand) found.push_back({product, launch, *operand});
      }
      product = nullptr;
    } else if (!is_bookkeeping(*op, storage)) {
      product = nullptr;
    }
  }
  return found;
}

}  // namespace hostjit
