// SPDX-License-Identifier: Apache-2.0
#include "codegen/codegen.h"
#include "codegen/dispatcher.h"
#include "ir/effects.h"

namespace hostjit {

// A range that was not opened is not closed, though profiling may have begun in between.
void Dispatcher::emit(const RangePush& op) {
  llvm::Value* is_on = call(Extern::hostjit_profiling_enabled, {frame_});
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

void Dispatcher::note_device_time(const Op& op, size_t event) {
  if (!node_times_ || storage_.layout().device < 0) return;
  if (!works_on_cuda(op) && !has_regions(op)) return;
  const auto* launch = op.get_if<LaunchKernel>();
  const int64_t stream = stream_number(launch ? launch->stream : nullptr);
  call_fallible(Extern::hostjit_note_device_time,
                {frame_, integer(static_cast<int64_t>(event)), integer(stream)});
}

void Dispatcher::read_device_times() {
  if (!node_times_ || storage_.layout().device < 0) return;
  const auto num_nodes = static_cast<int64_t>(program_.body().size());
  const auto first = static_cast<int64_t>(num_host_times(program_) * sizeof(int64_t));
  call_fallible(Extern::hostjit_read_device_times,
                {frame_, integer(num_nodes), address(node_times_, first)});
}

}  // namespace hostjit
