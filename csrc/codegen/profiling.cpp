// SPDX-License-Identifier: Apache-2.0
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

}  // namespace hostjit
