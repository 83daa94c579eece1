// SPDX-License-Identifier: Apache-2.0
#include "bindings/hidden_frames.h"

#include "bindings/py_ref.h"

namespace hostjit {
namespace {

// torch._C._dynamo.eval_frame.set_eval_frame: takes a callback, or None, and returns the one
// before. Never released.
PyObject* set_eval_frame = nullptr;

}  // namespace

bool prepare_hidden_frames() {
  const PyRef module = PyRef::steal(PyImport_ImportModule("torch._C._dynamo.eval_frame"));
  if (module) set_eval_frame = PyObject_GetAttrString(module.get(), "set_eval_frame");
  return set_eval_frame != nullptr;
}

HiddenFrames::HiddenFrames() : before_(PyObject_CallOneArg(set_eval_frame, Py_None)) {
  // It refuses nothing but what is no callback.
  if (before_ == nullptr) PyErr_Clear();
}

HiddenFrames::~HiddenFrames() {
  const PyRef before = PyRef::steal(before_);
  if (!before || before.get() == Py_None) return;
  PyObject* type = nullptr;
  PyObject* error = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &error, &traceback);
  if (!PyRef::steal(PyObject_CallOneArg(set_eval_frame, before.get()))) PyErr_Clear();
  PyErr_Restore(type, error, traceback);
}

}  // namespace hostjit
