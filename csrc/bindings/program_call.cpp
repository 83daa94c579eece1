// SPDX-License-Identifier: Apache-2.0
#include "bindings/program_call.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <bit>
#include <string>

#include "bindings/python_error.h"
#include "runtime/frame_storage.h"
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

// As TensorImpl::data(), without its virtual calls where the tensor has a storage.
const void* first_element(const c10::TensorImpl* impl) {
  const c10::Storage& storage = impl->unsafe_storage();
  if (!storage) [[unlikely]]
    return impl->data();
  const auto* base = static_cast<const char*>(storage.unsafeGetStorageImpl()->data());
  const int64_t offset = impl->storage_offset();
  if (offset == 0 || base == nullptr) return base;
  return base + offset * static_cast<int64_t>(impl->itemsize());
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

}  // namespace

ProgramCall::ProgramCall(const CompiledProgram& program, ProgramRow& row)
    : program_(program), row_(row), frame_(row.take_frame()) {
  const size_t num_inputs = program.program().inputs().size();
  // Used by position, within the capacity: inputs_ points into the others.
  tensors_.reserve(num_inputs);
  scalars_.reserve(num_inputs);
  inputs_.reserve(num_inputs + 1);
  inputs_.data()[0] = frame_;
}

ProgramCall::~ProgramCall() {
  for (PyObject* output : outputs_) Py_XDECREF(output);
  row_.give_back(frame_);
}

void ProgramCall::add_tensor(PyObject* tensor) {
  at::Tensor& value = reinterpret_cast<THPVariable*>(tensor)->cdata;
  const c10::TensorImpl* impl = value.unsafeGetTensorImpl();
  const void* data = first_element(impl);
  HOSTJIT_CHECK(data != nullptr || impl->numel() == 0, "input %",
                program_.program().inputs()[num_added_]->name(), " of sizes ", impl->sizes(),
                " has no memory: its storage was resized");
  // Field by field: a struct on the stack would be copied by loads wider than its stores.
  TensorArg& argument = tensors_.data()[num_added_];
  argument.data = const_cast<void*>(data);
  argument.sizes = impl->sizes().data();
  argument.strides = impl->strides().data();
  argument.tensor = &value;
  inputs_.data()[++num_added_] = &argument;
}

void ProgramCall::add_index(int64_t value) {
  scalars_.data()[num_added_] = value;
  inputs_.data()[num_added_ + 1] = &scalars_.data()[num_added_];
  ++num_added_;
}

void ProgramCall::add_f64(double value) { add_index(std::bit_cast<int64_t>(value)); }

void ProgramCall::keep_outputs(KeptTensors& kept) { FrameStorage::of(frame_).kept = &kept; }

bool ProgramCall::run(MainFunction main) {
  const size_t num_outputs = program_.program().outputs().size();
  c10::SmallVector<void*, 8> raw;
  for (size_t i = 0; i < num_outputs; ++i) raw.push_back(nullptr);
  void* const* inputs = inputs_.data() + 1;
  if (call_main(row_, main, inputs, raw.data()) != 0) {
    set_error();
    return false;
  }
  return wrap_outputs(raw.data());
}

bool ProgramCall::wrap_outputs(void* const* raw) {
  const std::vector<Value*>& values = program_.program().outputs();
  bool ok = true;
  for (size_t i = 0; i < values.size(); ++i) {
    PyObject* output = nullptr;
    if (values[i]->is_tensor()) {
      auto impl = c10::intrusive_ptr<c10::TensorImpl, at::UndefinedTensorImpl>::reclaim(
          static_cast<c10::TensorImpl*>(raw[i]));
      output = THPVariable_Wrap(at::TensorBase(std::move(impl)));
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
