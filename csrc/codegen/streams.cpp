// SPDX-License-Identifier: Apache-2.0
// Streams and events. Which stream is current is known where code is emitted: it is that of the
// last set_stream, and a region ends with the one it began with.
#include <cstddef>

#include "codegen/dispatcher.h"

namespace hostjit {

void Dispatcher::emit(const CurrentStream& op) { stream_numbers_[op.result] = current_stream_; }

void Dispatcher::emit(const PoolStream& op) {
  const int64_t number = stream_numbers_[op.result] = storage_.stream_numbers().of(op.result);
  call_fallible(Extern::hostjit_fork_stream, {frame_, integer(number)});
}

void Dispatcher::emit(const SetStream& op) { set_stream(stream_number(op.stream)); }

void Dispatcher::emit(const RecordEvent& op) {
  call_fallible(Extern::hostjit_record_event,
                {frame_, integer(storage_.stream_numbers().of(op.result)),
                 integer(stream_number(op.stream))});
}

void Dispatcher::emit(const WaitEvent& op) {
  call_fallible(
      Extern::hostjit_wait_event,
      {frame_, integer(storage_.stream_numbers().of(op.event)), integer(stream_number(op.stream))});
}

void Dispatcher::emit(const Synchronize& op) {
  call_fallible(Extern::hostjit_synchronize, {frame_, integer(stream_number(op.stream))});
}

void Dispatcher::enter_streams() {
  for (size_t i = 0; i < program_.inputs().size(); ++i) {
    const Value* input = program_.inputs()[i];
    if (!std::holds_alternative<StreamType>(input->type())) continue;
    const int64_t number = stream_numbers_[input] = storage_.stream_numbers().of(input);
    llvm::Value* place = address(function_->getArg(1), static_cast<int64_t>(i * sizeof(void*)));
    llvm::Value* argument = builder_.CreateLoad(pointer_, place, input->name());
    call_fallible(Extern::hostjit_enter_stream, {frame_, integer(number), argument});
  }
}

void Dispatcher::leave_streams() {
  if (!uses_streams()) return;
  call_fallible(Extern::hostjit_leave_streams, {frame_});
  current_stream_ = 0;
}

void Dispatcher::set_stream(int64_t number) {
  if (number == current_stream_) return;
  call_fallible(Extern::hostjit_set_stream, {frame_, integer(number)});
  current_stream_ = number;
}

int64_t Dispatcher::stream_number(const Value* stream) const {
  return stream ? stream_numbers_.at(stream) : current_stream_;
}

llvm::Value* Dispatcher::stream_handle(const Value* stream) {
  const int64_t number = stream_number(stream);
  if (number == 0) return stream_;
  llvm::Value* table = frame_field(offsetof(Frame, streams), pointer_, "streams");
  return builder_.CreateLoad(pointer_, address(table, number * static_cast<int64_t>(sizeof(void*))),
                             "stream");
}

// What streams may still use is released behind their work.
void Dispatcher::release_behind_streams(size_t first) {
  if (released_behind_streams_.size() <= first) return;
  const std::vector<int64_t> slots(released_behind_streams_.begin() + static_cast<int64_t>(first),
                                   released_behind_streams_.end());
  released_behind_streams_.resize(first);
  for (const int64_t slot : slots) call(Extern::hostjit_release, {frame_, integer(slot)});
}

}  // namespace hostjit
