// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "runtime/abi.h"

namespace hostjit {

// One call of an operator through PyTorch's dispatcher: the operator is looked up and the constant
// arguments are converted once. Immutable, so threads share it.
class AtenCallSite {
 public:
  // `slots` says what each result must be and outlives the site.
  // Throws Error that names the operator, the argument, the expected type and the literal.
  AtenCallSite(const AtenCallSpec& spec, const std::vector<SlotSpec>& slots);

  // operands[i] is an at::Tensor*, an int64_t* or a double*. Calls `store(slot, tensor)` for each
  // result that is kept, in order. A list of tensors counts as that many results. Throws what the
  // operator throws, and Error for a result of another dtype, device, size or stride than its slot.
  template <class Store>
  void call(void* const* operands, Store store) const {
    call(operands, slots_, std::move(store));
  }
  // The same with the types of other slots of these numbers.
  template <class Store>
  void call(void* const* operands, const std::vector<SlotSpec>& slots, Store store) const {
    std::vector<at::Tensor> results = run(operands);
    for (size_t i = 0; i < results.size(); ++i) {
      if (result_slots_[i] < 0) continue;
      check_result(i, slots[result_slots_[i]].type, results[i]);
      store(result_slots_[i], std::move(results[i]));
    }
  }

 private:
  // An argument: a constant, operand `operand`, or, when `elements` is not empty, a list.
  struct Argument {
    c10::IValue constant;
    int64_t operand = -1;
    c10::TypePtr type;
    std::vector<Argument> elements;
  };

  Argument make_argument(const Literal& literal, const c10::TypePtr& type,
                         std::optional<int32_t> list_size) const;
  c10::IValue value_of(const Argument& argument, void* const* operands) const;
  at::Scalar scalar(int64_t operand, void* const* operands) const;
  bool is_f64(int64_t operand) const {
    return !operand_is_f64_.empty() && operand_is_f64_[operand];
  }
  std::vector<at::Tensor> run(void* const* operands) const;
  // Copies a result that shares memory with an operand although the schema declares no alias
  // (dropout in evaluation hands back its input): the operand's memory may be planned.
  void separate_from_operands(at::Tensor& result, void* const* operands) const;
  // Makes `result` plain memory: no lazy conjugation or negation.
  void check_result(size_t index, const TensorSpec& expected, at::Tensor& result) const;
  [[noreturn]] void fail(const std::string& message) const;

  std::string target_;
  std::vector<bool> operand_is_tensor_;
  std::vector<bool> operand_is_f64_;
  std::vector<int64_t> result_slots_;
  const std::vector<SlotSpec>& slots_;
  c10::OperatorHandle op_;
  bool declares_alias_;
  std::vector<Argument> arguments_;
};

}  // namespace hostjit
