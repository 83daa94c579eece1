// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace hostjit {

// Fetches what the classes below need; false with a Python error set.
bool prepare_hidden_frames();

// While it lives, the Python error that was set is not, and comes back at its end.
class ErrorKept {
 public:
  ErrorKept() { PyErr_Fetch(&type_, &error_, &traceback_); }
  ~ErrorKept() {
    if (type_ != nullptr) PyErr_Restore(type_, error_, traceback_);
  }
  ErrorKept(const ErrorKept&) = delete;
  ErrorKept& operator=(const ErrorKept&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* error_ = nullptr;
  PyObject* traceback_ = nullptr;
};

// While it lives, Dynamo asks a callback about each Python frame that begins in this thread.
class FrameCallback {
 public:
  explicit FrameCallback(PyObject* callback);
  ~FrameCallback();
  FrameCallback(const FrameCallback&) = delete;
  FrameCallback& operator=(const FrameCallback&) = delete;

 private:
  PyObject* before_;  // what Dynamo asked; null if it could not be set, or is the same
};

// While it lives, Dynamo looks at no Python frame that begins in this thread: what
// `torch._dynamo.disable` does, which is a frame itself, and takes longer than a small program.
class HiddenFrames : public FrameCallback {
 public:
  HiddenFrames() : FrameCallback(Py_None) {}
};

}  // namespace hostjit
