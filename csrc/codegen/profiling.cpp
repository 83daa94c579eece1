// SPDX-License-Identifier: Apache-2.0
#include "codegen/codegen.h"
#include "codegen/dispatcher.h"

namespace hostjit {

// A range that was not opened is not closed, though profiling may have begun in between.
void Dispatcher::emit(const RangePush& op) {
  llvm::Value* is_on = call(Extern::hostjit_profiling_enabled, {});
  open_ranges_.push_back(is_on);
  emit_if(is_on, [&] { call(Extern::hostjit_range_push, {frame_, string_constant(op.label)}); });
}

void Dispatcher::emit(const RangePop&) {
  HOSTJIT_CHECK(!open_ranges_.empty(), "range_pop: no range is open, expected a range_push before");
  llvm::Value* was_opened = open_ranges_.back();
  open_ranges_.pop_back();
  emit_if(was_opened, [&] { call(Extern::hostjit_range_pop, {frame_}); });
}

void Dispatcher::time_nodes(const std::string& symbol) {
  auto* type = llvm::ArrayType::get(builder_.getInt64Ty(), num_node_times(program_));
  node_times_ = new llvm::GlobalVariable(module_, type, /*isConstant=*/false,
                                         llvm::GlobalValue::ExternalLinkage,
                                         llvm::Constant::getNullValue(type), symbol);
}

// The clock is a function that LLVM knows nothing of: no access to memory moves across its call.
void Dispatcher::note_time(size_t index) {
  if (!node_times_) return;
  llvm::Value* now = call(Extern::hostjit_now, {});
  builder_.CreateStore(now, address(node_times_, static_cast<int64_t>(index * sizeof(int64_t))));
}

}  // namespace hostjit
