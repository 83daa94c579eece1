// SPDX-License-Identifier: Apache-2.0
#include "passes/remove_dead_ops.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/effects.h"
#include "ir/visitor.h"
#include "passes/alias_analysis.h"

namespace hostjit {
namespace {

// Marks live ops from what can be seen outside, backwards through values and memory.
class LiveOps {
 public:
  explicit LiveOps(const Program& program) : aliases_(program) {
    for (const Region* region : {&program.init(), &program.body()}) {
      for_each_op(*region, [&](const Op& op) {
        add_writes(op);
        for_each_result(op, [&](const Value* value, ResultKind kind) {
          if (kind == ResultKind::kScalar) scalars_[value->name()] = value;
        });
      });
      add_inner_ops(*region, nullptr);
    }
    // Who has a view has the memory behind it.
    for (const Value* input : program.inputs()) observe(input, ByteRange{});
    for (const Value* output : program.outputs()) {
      observe(output, ByteRange{});
      keep_producer(output);
    }
    for (const Region* region : {&program.init(), &program.body()}) {
      for_each_op(*region, [&](const Op& op) {
        if (!is_removable(op)) keep(&op);
      });
    }
    for (const Value* input : program.inputs()) keep_symbols(input);
    propagate();
  }

  bool contains(const Op& op) const {
    // A Deallocate keeps nothing alive; it stays with its buffer, and inputs stay.
    if (const auto* deallocate = op.get_if<Deallocate>()) {
      const Op* producer = deallocate->buffer->producer();
      return producer == nullptr || live_.contains(producer);
    }
    return live_.contains(&op);
  }

 private:
  void add_inner_ops(const Region& region, const Op* around) {
    for (const auto& op : region) {
      if (around) around_[op.get()] = around;
      for_each_region(*op, [&](std::string_view, const NestedRegion& nested) {
        add_inner_ops(*nested, op.get());
      });
    }
  }

  void add_writes(const Op& op) {
    for_each_operand(op, [&](const Value* value, Access access) {
      if (!writes(access)) return;
      const ByteRange bytes = aliases_.bytes_used(op, value);
      for (const Value* root : aliases_.roots(value)) writers_[root].push_back({&op, bytes});
    });
  }

  void keep(const Op* op) {
    if (op && live_.insert(op).second) work_.push_back(op);
  }

  void keep_producer(const Value* value) { keep(value->producer()); }

  // Somebody reads `bytes` of the memory of `value`: what is written there counts.
  void observe(const Value* value, const ByteRange& bytes) {
    for (const Value* root : aliases_.roots(value)) {
      for (const Writer& writer : writers_[root]) {
        if (writer.bytes.overlaps(bytes)) keep(writer.op);
      }
    }
  }

  // The ops that define what a type names.
  void keep_symbols(const Value* value) {
    const auto* type = std::get_if<TensorType>(&value->type());
    if (!type || type->is_static()) return;
    for (const auto* dims : {&type->dims, &type->strides}) {
      for (const Dim& dim : *dims) keep_symbol(dim);
    }
  }

  void keep_symbol(const Dim& dim) {
    if (dim.is_constant()) return;
    const auto found = scalars_.find(dim.symbol);
    if (found != scalars_.end()) keep_producer(found->second);
  }

  void propagate() {
    while (!work_.empty()) {
      const Op* op = work_.back();
      work_.pop_back();
      if (const auto found = around_.find(op); found != around_.end()) keep(found->second);
      for_each_operand(*op, [&](const Value* value, Access access) {
        keep_producer(value);
        if (reads(access)) observe(value, aliases_.bytes_used(*op, value));
      });
      for_each_result(*op, [&](const Value* value, ResultKind) { keep_symbols(value); });
      for_each_dim(*op, [&](const Dim& dim) { keep_symbol(dim); });
    }
  }

  struct Writer {
    const Op* op;
    ByteRange bytes;
  };

  AliasAnalysis aliases_;
  std::unordered_map<const Op*, const Op*> around_;  // by op of a region, the op that has it
  std::unordered_map<const Value*, std::vector<Writer>> writers_;  // by root
  std::unordered_map<std::string, const Value*> scalars_;          // by name
  std::unordered_set<const Op*> live_;
  std::vector<const Op*> work_;
};

void remove_unused_kernels(Program& program) {
  std::unordered_set<std::string> used;
  for (const Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) {
      if (const auto* launch = op.get_if<LaunchKernel>()) used.insert(launch->kernel);
    });
  }
  std::vector<std::string> unused;
  for (const auto& [name, kernel] : program.kernels()) {
    if (!used.contains(name)) unused.push_back(name);
  }
  for (const std::string& name : unused) program.remove_kernel(name);
}

void remove_from(Region& region, const LiveOps& live) {
  std::erase_if(region, [&](const auto& op) { return !live.contains(*op); });
  for (const auto& op : region) {
    for_each_region(*op,
                    [&](std::string_view, NestedRegion& nested) { remove_from(*nested, live); });
  }
}

}  // namespace

void remove_dead_ops(Program& program) {
  const LiveOps live(program);
  std::vector<Value*> dead_results;
  for (Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) {
      if (!live.contains(op)) std::ranges::copy(results_of(op), std::back_inserter(dead_results));
    });
  }
  for (Region* region : {&program.body(), &program.init()}) remove_from(*region, live);
  for (Value* result : dead_results) result->set_producer(nullptr);
  remove_unused_kernels(program);
}

}  // namespace hostjit
