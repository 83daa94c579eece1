// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/python_variable.h>

#include <vector>

#include "bindings/compiled_program.h"
#include "bindings/donation.h"
#include "bindings/input_binding.h"
#include "bindings/program_arguments.h"
#include "runtime/kept_tensors.h"

namespace hostjit {

// One call of a program's main: the arrays that its ABI wants, the frame, and the outputs as
// Python objects. Lives on the stack of the call.
class ProgramCall {
 public:
  // Takes a frame of a row of the program; throws what its initialisation raised.
  ProgramCall(const CompiledProgram& program, ProgramRow& row)
      : program_(program),
        row_(row),
        frame_(row.take_frame()),
        arguments_(program.program(), frame_) {}
  ~ProgramCall() {
    for (void* output : outputs_) Py_XDECREF(static_cast<PyObject*>(output));
    row_.give_back(frame_);
  }
  ProgramCall(const ProgramCall&) = delete;
  ProgramCall& operator=(const ProgramCall&) = delete;

  // Input i. Tensors outlive the call.
  [[gnu::always_inline]] void set_tensor(size_t i, const InputBinding& binding,
                                         const Leaves& leaves) {
    if (const TensorArg* known = binding.known_argument()) {
      arguments_.set_argument(i, *known);
    } else {
      arguments_.set_tensor(i, binding.tensor(leaves));
    }
  }
  void set_tensor(size_t i, const at::Tensor& tensor) { arguments_.set_tensor(i, tensor); }
  void set_index(size_t i, int64_t value) { arguments_.set_index(i, value); }
  void set_stream(size_t i, StreamArg stream) { arguments_.set_stream(i, stream); }
  void set_f64(size_t i, double value) { arguments_.set_f64(i, value); }

  // Lets the call write its outputs into the tensors kept, and keep those that it makes. `kept`
  // outlives this object's last run.
  void keep_outputs(KeptTensors& kept);

  // Lets the call release those of `inputs`, one per program input, that the program donates.
  Donation donate(at::Tensor* inputs) { return {frame_, inputs}; }

  // Releases the GIL for a row that takes_long(): then the caller keeps the tensors alive.
  // False with a Python error set: the class and text that eager raises, and a note that names the
  // Host IR node and the user's source line.
  bool run(MainFunction main) { return call_main(main, outputs_) && wrap_outputs(); }
  // The same for a program whose outputs are tensors: they become `tensors`, no Python objects.
  bool run(MainFunction main, std::vector<at::Tensor>& tensors);
  // The same where some are numbers, whose bits follow each other in `numbers`.
  using Numbers = c10::SmallVector<uint64_t, 16>;
  bool run(MainFunction main, std::vector<at::Tensor>& tensors, Numbers& numbers);
  // Makes the first `count` of the tensors that run() gave the outputs.
  bool wrap(const std::vector<at::Tensor>& tensors, size_t count);

  // How many calls have failed in this thread.
  static uint64_t num_failed();

  // One owned PyObject* per program output, after run() or wrap() returned true. Who takes one
  // leaves null.
  void** outputs() { return outputs_.data(); }

 private:
  using Outputs = c10::SmallVector<void*, 8>;
  bool call_main(MainFunction main, Outputs& raw) {
    raw.resize(program_.program().outputs().size(), nullptr);
    const int32_t status = row_.is_plain() ? main(/*cache_id=*/0, arguments_.inputs(), raw.data())
                                           : call_with_care(main, raw.data());
    if (status == 0) [[likely]]
      return true;
    raw.clear();
    set_error();
    return false;
  }
  int32_t call_with_care(MainFunction main, void** raw);
  bool wrap_outputs();
  void set_error();

  const CompiledProgram& program_;
  ProgramRow& row_;
  Frame* frame_;
  ProgramArguments arguments_;
  Outputs outputs_;  // as main left them, then as Python objects
};

}  // namespace hostjit
