// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "evaluator/aten_call_table.h"
#include "evaluator/value_table.h"
#include "ir/program.h"
#include "ir/stream_numbers.h"
#include "runtime/abi.h"

namespace hostjit {

// Does the ops of one call, one member per kind of op.
class OpEvaluator {
 public:
  // `kernels` are those of the CPU among the program's `kernel_texts`.
  OpEvaluator(Frame* frame, const std::map<std::string, Kernel>& kernel_texts,
              const std::map<std::string, PackedKernel>& kernels, const AtenCallTable& aten_calls,
              const StreamNumbers& stream_numbers, ValueTable& values)
      : frame_(frame),
        kernel_texts_(kernel_texts),
        kernels_(kernels),
        aten_calls_(aten_calls),
        stream_numbers_(stream_numbers),
        values_(values) {}

  // Runs the ops of `region`, the first of which is node `first_node` of the program.
  void run(const Region& region, int64_t first_node);

#define HOSTJIT_DECLARE_EVALUATE(type) void evaluate(const type& op);
  HOSTJIT_FOR_EACH_OP(HOSTJIT_DECLARE_EVALUATE)
#undef HOSTJIT_DECLARE_EVALUATE

 private:
  // Runs what `op` holds. What streams may still use of it is replaced behind their work.
  void run_nested(const Region& region, int64_t first_node);
  bool uses_streams() const { return stream_numbers_.num_streams() > 0; }
  int64_t stream_number(const Value* stream);
  at::Tensor empty(const TensorType& type) const;
  at::Tensor& tensor(const Value* value) { return values_.tensor(value); }

  Frame* frame_;
  const std::map<std::string, Kernel>& kernel_texts_;
  const std::map<std::string, PackedKernel>& kernels_;
  const AtenCallTable& aten_calls_;
  const StreamNumbers& stream_numbers_;
  ValueTable& values_;
};

}  // namespace hostjit
