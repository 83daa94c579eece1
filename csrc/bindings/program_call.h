// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <c10/util/SmallVector.h>

#include "bindings/compiled_program.h"
#include "runtime/kept_tensors.h"

namespace hostjit {

// One call of a program's main: the arrays that its ABI wants, the frame, and the outputs as
// Python objects. Lives on the stack of the call.
class ProgramCall {
 public:
  // Takes a frame of a row of the program; throws what its initialisation raised.
  ProgramCall(const CompiledProgram& program, ProgramRow& row);
  ~ProgramCall();
  ProgramCall(const ProgramCall&) = delete;
  ProgramCall& operator=(const ProgramCall&) = delete;

  // The next input. `tensor` is a torch.Tensor that outlives the call. Throws Error when its
  // storage was emptied: eager reads through the null pointer.
  void add_tensor(PyObject* tensor);
  void add_index(int64_t value);
  void add_f64(double value);

  // Lets the call write its outputs into the tensors kept, and keep those that it makes. `kept`
  // outlives this object's last run.
  void keep_outputs(KeptTensors& kept);

  // Releases the GIL for a row that takes_long(): then the caller keeps the tensors alive.
  // False with a Python error set: the class and text that eager raises, and a note that names the
  // Host IR node and the user's source line.
  bool run(MainFunction main);

  // One owned Python object per program output, after run() returned true.
  PyObject* const* outputs() const { return outputs_.data(); }

 private:
  bool wrap_outputs(void* const* raw);
  void set_error();

  const CompiledProgram& program_;
  ProgramRow& row_;
  Frame* frame_;
  c10::SmallVector<TensorArg, 16> tensors_;
  c10::SmallVector<int64_t, 16> scalars_;  // int64_t or the bits of a double
  c10::SmallVector<void*, 17> inputs_;     // the frame, then one pointer per input
  size_t num_added_ = 0;                   // inputs so far
  c10::SmallVector<PyObject*, 8> outputs_;
};

}  // namespace hostjit
