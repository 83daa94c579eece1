// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace hostjit {

// Fetches what HiddenFrames needs; false with a Python error set.
bool prepare_hidden_frames();

// While it lives, Dynamo looks at no Python frame that begins in this thread: what
// `torch._dynamo.disable` does, which is a frame itself, and takes longer than a small program.
class HiddenFrames {
 public:
  HiddenFrames();
  ~HiddenFrames();
  HiddenFrames(const HiddenFrames&) = delete;
  HiddenFrames& operator=(const HiddenFrames&) = delete;

 private:
  PyObject* before_;  // what Dynamo asked of each frame; null if it could not be set
};

}  // namespace hostjit
