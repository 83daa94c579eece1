// SPDX-License-Identifier: Apache-2.0
#include "ir/stream_numbers.h"

#include "ir/visitor.h"

namespace hostjit {

StreamNumbers::StreamNumbers(const Program& program) {
  for (const Value* input : program.inputs()) {
    if (std::holds_alternative<StreamType>(input->type())) numbers_[input] = ++num_streams_;
  }
  for_each_op(program.body(), [&](const Op& op) {
    if (const auto* fork = op.get_if<PoolStream>()) numbers_[fork->result] = ++num_streams_;
    if (const auto* record = op.get_if<RecordEvent>()) numbers_[record->result] = num_events_++;
  });
}

}  // namespace hostjit
