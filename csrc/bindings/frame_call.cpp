// SPDX-License-Identifier: Apache-2.0
#include "bindings/frame_call.h"

#include <ATen/SavedTensorHooks.h>
#include <structmember.h>

#include <cstddef>

#include "bindings/hidden_frames.h"
#include "bindings/py_ref.h"

namespace hostjit {
namespace {

// What becomes of frames in a thread.
struct Frames {
  Py_ssize_t compiled = 0;
  Py_ssize_t depth = 0;  // of the FrameCalls that run, one in the other
  bool are_left = false;
};

thread_local Frames frames;

struct FrameCall {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* run;
  PyObject* target;
  PyObject* callback;
  PyObject* record;
  PyObject* instead;
};

FrameCall* as_frame_call(PyObject* object) { return reinterpret_cast<FrameCall*>(object); }

// The module torch.autograd.forward_ad, and the name of the level in it. Never released.
PyObject* forward_ad = nullptr;
PyObject* level_name = nullptr;

// Whether what runs now has to run eagerly: 1 or 0, -1 with a Python error set.
int runs_eagerly() {
  if (!at::SavedTensorDefaultHooks::get_tls_state().stack.empty()) return 1;
  const PyRef level = PyRef::steal(PyObject_GetAttr(forward_ad, level_name));
  if (!level) return -1;
  const long found = PyLong_AsLong(level.get());
  return found == -1 && PyErr_Occurred() != nullptr ? -1 : static_cast<int>(found >= 0);
}

PyObject* call_with_frames(const FrameCall* self, PyObject* const* args, size_t nargsf,
                           PyObject* kwnames) {
  const Py_ssize_t compiled = frames.compiled;
  // Others may have it become another one while it runs.
  const PyRef run = PyRef::share(self->run);
  const PyRef record = PyRef::share(self->record);
  PyRef result;
  {
    const FrameCallback callback(self->callback);
    ++frames.depth;
    result = PyRef::steal(PyObject_Vectorcall(run.get(), args, nargsf, kwnames));
    --frames.depth;
    frames.are_left = frames.are_left && frames.depth > 0;
  }
  if (frames.compiled == compiled) return result.release();
  PyRef recorded;
  {
    const ErrorKept error;
    recorded = PyRef::steal(PyObject_CallNoArgs(record.get()));
  }
  return recorded ? result.release() : nullptr;
}

PyTypeObject* frame_call_type = nullptr;

void become_other(FrameCall* self, const FrameCall* other) {
  Py_XSETREF(self->run, Py_NewRef(other->run));
  Py_XSETREF(self->target, Py_NewRef(other->target));
  Py_XSETREF(self->callback, Py_NewRef(other->callback));
  Py_XSETREF(self->record, Py_NewRef(other->record));
  Py_CLEAR(self->instead);
}

// Calls `instead`, which may have `settled` on a FrameCall then.
PyObject* call_instead(FrameCall* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const PyRef instead = PyRef::share(self->instead);
  PyRef result = PyRef::steal(PyObject_Vectorcall(instead.get(), args, nargsf, kwnames));
  const ErrorKept error;
  const PyRef settled = PyRef::steal(PyObject_GetAttrString(instead.get(), "settled"));
  if (!settled) PyErr_Clear();
  if (settled && Py_IS_TYPE(settled.get(), frame_call_type) && self->instead == instead.get()) {
    become_other(self, as_frame_call(settled.get()));
  }
  return result.release();
}

PyObject* call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  FrameCall* self = as_frame_call(object);
  const int eagerly = runs_eagerly();
  if (eagerly < 0) return nullptr;
  if (eagerly != 0) {
    const PyRef target = PyRef::share(self->target);
    return PyObject_Vectorcall(target.get(), args, nargsf, kwnames);
  }
  if (self->instead != nullptr) {
    const PyRef kept = PyRef::share(object);
    return call_instead(self, args, nargsf, kwnames);
  }
  return call_with_frames(self, args, nargsf, kwnames);
}

PyObject* construct(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"run", "target", "callback", "record", nullptr};
  PyObject* run = nullptr;
  PyObject* target = nullptr;
  PyObject* callback = nullptr;
  PyObject* record = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO", const_cast<char**>(names), &run, &target,
                                   &callback, &record)) {
    return nullptr;
  }
  FrameCall* self = as_frame_call(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = call;
  self->run = Py_NewRef(run);
  self->target = Py_NewRef(target);
  self->callback = Py_NewRef(callback);
  self->record = Py_NewRef(record);
  self->instead = nullptr;
  return reinterpret_cast<PyObject*>(self);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  const FrameCall* self = as_frame_call(object);
  Py_VISIT(self->run);
  Py_VISIT(self->target);
  Py_VISIT(self->callback);
  Py_VISIT(self->record);
  Py_VISIT(self->instead);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

PyObject* refuse_call(PyObject*, PyObject* const*, size_t, PyObject*) {
  PyErr_SetString(PyExc_RuntimeError, "a call of what is being deleted");
  return nullptr;
}

int clear(PyObject* object) {
  FrameCall* self = as_frame_call(object);
  self->vectorcall = refuse_call;
  Py_CLEAR(self->run);
  Py_CLEAR(self->target);
  Py_CLEAR(self->callback);
  Py_CLEAR(self->record);
  Py_CLEAR(self->instead);
  return 0;
}

void deallocate(PyObject* object) {
  PyObject_GC_UnTrack(object);
  clear(object);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

// become(other)
PyObject* become(PyObject* object, PyObject* other) {
  if (!Py_IS_TYPE(other, frame_call_type)) {
    PyErr_Format(PyExc_TypeError, "become() takes a FrameCall, got %s", Py_TYPE(other)->tp_name);
    return nullptr;
  }
  become_other(as_frame_call(object), as_frame_call(other));
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"become", become, METH_O, "become(other)\n--\n\nHas it do from now on what another one does."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FrameCall, vectorcall), READONLY, nullptr},
    {"run", T_OBJECT, offsetof(FrameCall, run), READONLY, "What it calls."},
    {"callback", T_OBJECT, offsetof(FrameCall, callback), READONLY, "What Dynamo asks; or None."},
    {"instead", T_OBJECT, offsetof(FrameCall, instead), 0, "What it calls instead, or None."},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Calls a function while Dynamo is asked about its frames.")},
    {Py_tp_new, reinterpret_cast<void*>(construct)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec type_spec = {
    "hostjit._C.FrameCall",
    sizeof(FrameCall),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    slots,
};

PyObject* note_compiled_frame(PyObject*, PyObject*) {
  ++frames.compiled;
  Py_RETURN_NONE;
}

PyObject* num_compiled_frames(PyObject*, PyObject*) { return PyLong_FromSsize_t(frames.compiled); }

PyObject* leave_frames(PyObject*, PyObject*) {
  frames.are_left = frames.depth > 0;
  Py_RETURN_NONE;
}

PyObject* frames_are_left(PyObject*, PyObject*) { return PyBool_FromLong(frames.are_left); }

PyMethodDef functions[] = {
    {"note_compiled_frame", note_compiled_frame, METH_NOARGS,
     "note_compiled_frame()\n--\n\nCounts a frame that Dynamo has compiled in this thread."},
    {"num_compiled_frames", num_compiled_frames, METH_NOARGS,
     "num_compiled_frames()\n--\n\nHow many frames Dynamo has compiled in this thread."},
    {"leave_frames", leave_frames, METH_NOARGS,
     "leave_frames()\n--\n\nHas the frames be eager that begin until the outermost FrameCall of "
     "this\nthread returns."},
    {"frames_are_left", frames_are_left, METH_NOARGS,
     "frames_are_left()\n--\n\nWhether the frames that begin in this thread are to be eager."},
    {nullptr, nullptr, 0, nullptr},
};

bool prepare() {
  forward_ad = PyImport_ImportModule("torch.autograd.forward_ad");
  level_name = PyUnicode_InternFromString("_current_level");
  frame_call_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&type_spec));
  return forward_ad != nullptr && level_name != nullptr && frame_call_type != nullptr;
}

}  // namespace

bool add_frame_calls(PyObject* module) {
  return prepare() && PyModule_AddFunctions(module, functions) == 0 &&
         PyModule_AddObjectRef(module, "FrameCall", reinterpret_cast<PyObject*>(frame_call_type)) ==
             0;
}

}  // namespace hostjit
