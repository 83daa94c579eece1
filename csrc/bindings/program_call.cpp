// SPDX-License-Identifier: Apache-2.0
#include "bindings/program_call.h"

#include <torch/csrc/Exceptions.h>

#include <bit>
#include <string>
#include <string_view>

#include "bindings/py_ref.h"
#include "bindings/python_error.h"
#include "runtime/frame_storage.h"
#include "runtime/tensor_header.h"
#include "support/check.h"

namespace hostjit {
namespace {

thread_local uint64_t num_failed_calls = 0;

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

// An `assert` of a tensor fails as an operator, whose text says what it was; see
// handled_asserts.py.
void restore_assertion() {
  constexpr std::string_view kPrefix = "AssertionError: ";
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return;
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const PyRef text = PyRef::steal(value ? PyObject_Str(value) : nullptr);
  const char* message = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (message == nullptr || !std::string_view(message).starts_with(kPrefix)) {
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return;
  }
  const char* said = message + kPrefix.size();
  if (*said == '\0') {
    PyErr_SetNone(PyExc_AssertionError);
  } else {
    PyErr_SetString(PyExc_AssertionError, said);
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

PyObject* wrap_scalar(const Type& type, void* bits) {
  if (std::holds_alternative<F64Type>(type)) return PyFloat_FromDouble(std::bit_cast<double>(bits));
  if (std::holds_alternative<BoolType>(type)) return PyBool_FromLong(bits != nullptr);
  return PyLong_FromLongLong(std::bit_cast<int64_t>(bits));
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

uint64_t ProgramCall::num_failed() { return num_failed_calls; }

void ProgramCall::keep_outputs(KeptTensors& kept) { FrameStorage::of(frame_).kept = &kept; }

int32_t ProgramCall::call_with_care(MainFunction main, void** raw) {
  return row_.may_warn() ? call_with_warnings(main, arguments_.inputs(), raw)
                         : call_without_gil(main, arguments_.inputs(), raw);
}

bool ProgramCall::run(MainFunction main, std::vector<at::Tensor>& tensors) {
  Outputs raw;
  if (!call_main(main, raw)) return false;
  tensors.reserve(raw.size());
  for (void* output : raw) tensors.push_back(owned_tensor(output));
  hide_views(tensors);
  return true;
}

bool ProgramCall::run(MainFunction main, std::vector<at::Tensor>& tensors, Numbers& numbers) {
  Outputs raw;
  if (!call_main(main, raw)) return false;
  const std::vector<Value*>& values = program_.program().outputs();
  for (size_t i = 0; i < raw.size(); ++i) {
    if (values[i]->is_tensor()) {
      tensors.push_back(owned_tensor(raw[i]));
    } else {
      numbers.push_back(std::bit_cast<uint64_t>(raw[i]));
    }
  }
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

bool ProgramCall::wrap_outputs() {
  const std::vector<Value*>& values = program_.program().outputs();
  bool ok = true;
  for (size_t i = 0; i < values.size(); ++i) {
    void*& output = outputs_[i];
    output = values[i]->is_tensor() ? THPVariable_Wrap(owned_tensor(output))
                                    : wrap_scalar(values[i]->type(), output);
    ok = ok && output != nullptr;
  }
  return ok;
}

void ProgramCall::set_error() {
  const std::string note = ProgramState::node_note(frame_);
  set_recorded_error(frame_);
  restore_assertion();
  add_note(note);
  ++num_failed_calls;
}

}  // namespace hostjit
