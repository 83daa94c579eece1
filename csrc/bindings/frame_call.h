// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace hostjit {

// Adds the type FrameCall and functions about frames to `module`; false with a Python error set on
// failure.
//
//   FrameCall(run, target, callback, record)
//
// A callable that calls `run` while Dynamo asks `callback` about each Python frame that begins in
// the thread, or, where that is None, about none. `target`, which does the same, is called instead
// where frames may not be compiled: at a level of forward derivatives, and under hooks on saved
// tensors, since `torch.utils.checkpoint` runs a function twice, and wants as many tensors saved
// both times, whatever was compiled in between. After a call in which frames were compiled it calls
// `record`. As long as `instead` is set, that is called in the place of `run`, and nothing else is
// done, but that this becomes what is found in its attribute `settled` then.
//
//   become(other)          has it do from now on what another one does
//   note_compiled_frame()  counts a frame that Dynamo has compiled in this thread
//   num_compiled_frames()  how many it has
//   leave_frames()         has the frames be eager that begin until the outermost FrameCall returns
//   frames_are_left()      whether they are
bool add_frame_calls(PyObject* module);

}  // namespace hostjit
