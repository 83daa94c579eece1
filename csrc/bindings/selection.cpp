// SPDX-License-Identifier: Apache-2.0
#include "bindings/selection.h"

#include <c10/util/SmallVector.h>
#include <structmember.h>

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

#include "bindings/py_ref.h"

namespace hostjit {
namespace {

// One argument of the function.
struct Wanted {
  PyRef known;          // null: it is among the arguments
  Py_ssize_t position;  // of these
};

struct Selection {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  Py_ssize_t fewest;  // arguments of a call
  std::vector<Wanted> wanted;
};

Selection* as_selection(PyObject* object) { return reinterpret_cast<Selection*>(object); }

bool refuse_call(const Selection* self, Py_ssize_t nargs) {
  PyErr_Format(PyExc_TypeError, "a selection of %zd arguments takes no keywords, got %zd",
               self->fewest, nargs);
  return false;
}

bool is_enough(const Selection* self, Py_ssize_t nargs) {
  return nargs >= self->fewest || refuse_call(self, nargs);
}

PyObject* select(const Wanted& wanted, PyObject* const* values) {
  return wanted.known ? wanted.known.get() : values[wanted.position];
}

PyObject* call(PyObject* object, PyObject* const* values, size_t nargsf, PyObject* kwnames) {
  const Selection* self = as_selection(object);
  const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (kwnames != nullptr && PyTuple_GET_SIZE(kwnames) > 0) {
    refuse_call(self, nargs);
    return nullptr;
  }
  if (!is_enough(self, nargs)) return nullptr;
  c10::SmallVector<PyObject*, 16> selected;
  for (const Wanted& wanted : self->wanted) selected.push_back(select(wanted, values));
  return PyObject_Vectorcall(self->function, selected.data(), selected.size(), nullptr);
}

// call_boxed(arguments)
PyObject* call_boxed(PyObject* object, PyObject* list) {
  const Selection* self = as_selection(object);
  if (!PyList_CheckExact(list)) {
    PyErr_Format(PyExc_TypeError, "call_boxed() takes a list, got %s", Py_TYPE(list)->tp_name);
    return nullptr;
  }
  if (!is_enough(self, PyList_GET_SIZE(list))) return nullptr;
  const auto count = static_cast<Py_ssize_t>(self->wanted.size());
  const PyRef selected = PyRef::steal(PyList_New(count));
  if (!selected) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Wanted& wanted = self->wanted[static_cast<size_t>(i)];
    PyObject* value = wanted.known ? wanted.known.get() : PyList_GET_ITEM(list, wanted.position);
    PyList_SET_ITEM(selected.get(), i, Py_NewRef(value));
  }
  if (PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr) < 0) return nullptr;
  return PyObject_CallMethod(self->function, "call_boxed", "O", selected.get());
}

// One pair of the constructor's; false with a Python error set.
bool add_wanted(Selection* self, PyObject* pair) {
  PyObject* position = nullptr;
  PyObject* known = nullptr;
  if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "OO", &position, &known)) return false;
  if (position == Py_None) {
    self->wanted.push_back({PyRef::share(known), 0});
    return true;
  }
  const Py_ssize_t index = PyLong_AsSsize_t(position);
  if (index < 0) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a position is negative");
    return false;
  }
  self->wanted.push_back({PyRef(), index});
  if (index >= self->fewest) self->fewest = index + 1;
  return true;
}

PyObject* construct(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"function", "wanted", nullptr};
  PyObject* function = nullptr;
  PyObject* wanted = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", const_cast<char**>(names), &function,
                                   &wanted)) {
    return nullptr;
  }
  const PyRef pairs = PyRef::steal(PySequence_Fast(wanted, "wanted is no sequence"));
  if (!pairs) return nullptr;
  const PyRef made = PyRef::steal(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  Selection* self = as_selection(made.get());
  self->vectorcall = call;
  self->function = Py_NewRef(function);
  self->fewest = 0;
  new (&self->wanted) std::vector<Wanted>();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(pairs.get()); ++i) {
    if (!add_wanted(self, PySequence_Fast_GET_ITEM(pairs.get(), i))) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "what is wanted is no pair");
      return nullptr;
    }
  }
  return Py_NewRef(made.get());
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(as_selection(object)->function);
  for (const Wanted& wanted : as_selection(object)->wanted) Py_VISIT(wanted.known.get());
  Py_VISIT(Py_TYPE(object));
  return 0;
}

int clear(PyObject* object) {
  Selection* self = as_selection(object);
  Py_CLEAR(self->function);
  std::exchange(self->wanted, {}).clear();
  self->fewest = PY_SSIZE_T_MAX;  // nothing calls it any more
  return 0;
}

void deallocate(PyObject* object) {
  PyObject_GC_UnTrack(object);
  clear(object);
  as_selection(object)->wanted.~vector();
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* get_attribute(PyObject* object, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(object, name);
  if (found != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(as_selection(object)->function, name);
}

PyMethodDef methods[] = {
    {"call_boxed", call_boxed, METH_O,
     "call_boxed(arguments)\n--\n\nThe function's `call_boxed` with some items of a list, which is "
     "empty from then on."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Selection, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Calls a function with some of its arguments.")},
    {Py_tp_new, reinterpret_cast<void*>(construct)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_getattro, reinterpret_cast<void*>(get_attribute)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec type_spec = {
    "hostjit._C.Selection",
    sizeof(Selection),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    slots,
};

}  // namespace

bool add_selection_type(PyObject* module) {
  const PyRef type = PyRef::steal(PyType_FromSpec(&type_spec));
  return type && PyModule_AddObjectRef(module, "Selection", type.get()) == 0;
}

}  // namespace hostjit
