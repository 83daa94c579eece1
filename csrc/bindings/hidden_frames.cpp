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

FrameCallback::FrameCallback(PyObject* callback)
    : before_(PyObject_CallOneArg(set_eval_frame, callback)) {
  // It refuses nothing but what is no callback.
  if (before_ == nullptr) PyErr_Clear();
  if (before_ == callback) Py_CLEAR(before_);
}

FrameCallback::~FrameCallback() {
  const PyRef before = PyRef::steal(before_);
  if (!before) return;
  const ErrorKept error;
  if (!PyRef::steal(PyObject_CallOneArg(set_eval_frame, before.get()))) PyErr_Clear();
}

}  // namespace hostjit
