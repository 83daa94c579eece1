// SPDX-License-Identifier: Apache-2.0
#include "bindings/program_call.h"

#include <torch/csrc/Exceptions.h>

#include <bit>
#include <string>

#include "bindings/python_error.h"
#include "runtime/frame_storage.h"
#include "runtime/tensor_header.h"
#include "support/check.h"

namespace hostjit {
namespace {

int32_t call_without_gil(MainFunction main, void* const* inputs, void** outputs) {
  PyThreadState* thread = PyEval_SaveThread();
  const int32_t status = main(/*cache_id=*/0, inputs, outputs);
  PyEval_RestoreThread(thread);
  return status;
}

// Runs `main` with ATen's warnings turned into Python's, as every torch function does.
int32_t call_with_warnings(MainFunction main, void* const* inputs, void** outputs) {
  torch::PyWarningHandler warnings;
  const int32_t status = call_without_gil(main, inputs, outputs);
  if (status != 0) warnings.set_in_exception();
  return status;
}

int32_t call_main(const ProgramRow& row, MainFunction main, void* const* inputs, void** outputs) {
  if (row.may_warn()) return call_with_warnings(main, inputs, outputs);
  if (row.takes_long()) return call_without_gil(main, inputs, outputs);
  return main(/*cache_id=*/0, inputs, outputs);
}

// Sets the Python error that PyTorch sets for the exception the frame recorded.
PyObject* set_recorded_error(Frame* frame) {
  HANDLE_TH_ERRORS
  try {
    ProgramState::rethrow(frame);
  } catch (const Error& error) {
    set_python_error(error);
    return nullptr;
  }
  END_HANDLE_TH_ERRORS
}

void add_note(const std::string& note) {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value != nullptr) {
    PyObject* result = PyObject_CallMethod(value, "add_note", "s", note.c_str());
    if (result == nullptr) PyErr_Clear();
    Py_XDECREF(result);
  }
  PyErr_Restore(type, value, traceback);
}

// The evaluator makes views by PyTorch's operators: to autograd, which is off meanwhile, results
// would be views that nobody may write. As headers of their own they are what compiled code makes.
void hide_views(std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = tensors[i];
    if (!tensor.is_view()) [[likely]]
      continue;
    const at::Tensor header = alias_of(tensor, tensor.sizes(), tensor.strides(), /*offset=*/0);
    for (at::Tensor& other : tensors) {
      if (other.is_same(tensor)) other = header;
    }
  }
}

}  // namespace

ProgramCall::ProgramCall(const CompiledProgram& program, ProgramRow& row)
    : program_(program),
      row_(row),
      frame_(row.take_frame()),
      arguments_(program.program(), frame_) {}

ProgramCall::~ProgramCall() {
  for (PyObject* output : outputs_) Py_XDECREF(output);
  row_.give_back(frame_);
}

void ProgramCall::keep_outputs(KeptTensors& kept) { FrameStorage::of(frame_).kept = &kept; }

bool ProgramCall::run(MainFunction main) {
  RawOutputs raw;
  return run_raw(main, raw) && wrap_outputs(raw.data());
}

bool ProgramCall::run(MainFunction main, std::vector<at::Tensor>& tensors) {
  RawOutputs raw;
  if (!run_raw(main, raw)) return false;
  tensors.reserve(raw.size());
  for (void* output : raw) tensors.push_back(owned_tensor(output));
  hide_views(tensors);
  return true;
}

bool ProgramCall::wrap(const std::vector<at::Tensor>& tensors, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    outputs_.push_back(THPVariable_Wrap(tensors[i]));
    if (outputs_.back() == nullptr) return false;
  }
  return true;
}

bool ProgramCall::run_raw(MainFunction main, RawOutputs& raw) {
  const size_t num_outputs = program_.program().outputs().size();
  for (size_t i = 0; i < num_outputs; ++i) raw.push_back(nullptr);
  if (call_main(row_, main, arguments_.inputs(), raw.data()) == 0) return true;
  set_error();
  return false;
}

bool ProgramCall::wrap_outputs(void* const* raw) {
  const std::vector<Value*>& values = program_.program().outputs();
  bool ok = true;
  for (size_t i = 0; i < values.size(); ++i) {
    PyObject* output = nullptr;
    if (values[i]->is_tensor()) {
      output = THPVariable_Wrap(owned_tensor(raw[i]));
    } else if (std::holds_alternative<F64Type>(values[i]->type())) {
      output = PyFloat_FromDouble(std::bit_cast<double>(raw[i]));
    } else if (std::holds_alternative<BoolType>(values[i]->type())) {
      output = PyBool_FromLong(raw[i] != nullptr);
    } else {
      output = PyLong_FromLongLong(std::bit_cast<int64_t>(raw[i]));
    }
    ok = ok && output != nullptr;
    outputs_.push_back(output);
  }
  return ok;
}

void ProgramCall::set_error() {
  const std::string note = ProgramState::node_note(frame_);
  set_recorded_error(frame_);
  add_note(note);
}

}  // namespace hostjit
