// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <memory>
#include <vector>

#include "bindings/compiled_program.h"
#include "bindings/input_binding.h"
#include "bindings/program_call.h"

namespace hostjit {

// Whether a call reads the values of tensors that a recorded one has read: they are computed anew,
// by a program without effects and without symbols, and compared by their bytes. What else that
// returns is handed on to the program that answers the call, which need not compute it again.
class ReadCheck {
 public:
  // `description`: a tuple (program, bindings, expected, runtime), the bindings as of InputBinding,
  // the values expected as contiguous tensors on the CPU. They are the first results, some of them
  // as numbers. Throws Error when they do not fit.
  ReadCheck(PyObject* description, size_t num_leaves);

  // Never raises: false for values that cannot be computed. Sets what is handed on.
  bool holds(const Leaves& leaves);
  // The type of what it hands on; null where it does not.
  const Type* handed_on(size_t slot) const;
  // Whether it ever held.
  bool has_held() const { return has_held_; }

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  bool compute(const Leaves& leaves, std::vector<at::Tensor>& found, ProgramCall::Numbers& numbers);

  std::shared_ptr<CompiledProgram> program_;
  std::vector<InputBinding> inputs_;
  std::vector<at::Tensor> expected_;       // of the results that are tensors
  ProgramCall::Numbers expected_numbers_;  // the bits of the others
  size_t num_expected_ = 0;
  RuntimeChoice runtime_;
  bool has_held_ = false;
};

}  // namespace hostjit
