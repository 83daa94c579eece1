// SPDX-License-Identifier: Apache-2.0
#include "bindings/compiled_method.h"

#include <c10/util/SmallVector.h>
#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "bindings/compiled_function.h"
#include "bindings/function_call.h"
#include "bindings/py_ref.h"

namespace hostjit {
namespace {

struct CompiledMethod {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;  // a CompiledFunction
  PyObject* instance;
  PyObject* weak_references;
};

PyTypeObject* method_type = nullptr;

CompiledMethod* as_method(PyObject* object) { return reinterpret_cast<CompiledMethod*>(object); }

// Puts the instance before the arguments, in the caller's array where the caller has a place.
PyObject* call_method(PyObject* object, PyObject* const* values, size_t nargsf, PyObject* kwnames) {
  PyObject* instance = as_method(object)->instance;
  PyObject* function = as_method(object)->function;
  const auto nargs = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  if ((nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) != 0) [[likely]] {
    PyObject** place = const_cast<PyObject**>(values) - 1;
    PyObject* before = *place;
    *place = instance;
    PyObject* result = call_compiled_function(function, place, nargs + 1, kwnames);
    *place = before;
    return result;
  }
  const size_t count = nargs + (kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0);
  c10::SmallVector<PyObject*, 16> all(count + 1);
  all[0] = instance;
  std::copy_n(values, count, all.begin() + 1);
  return call_compiled_function(function, all.data(), nargs + 1, kwnames);
}

PyObject* construct_method(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"function", "instance", nullptr};
  PyObject* function = nullptr;
  PyObject* instance = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", const_cast<char**>(names), &function,
                                   &instance)) {
    return nullptr;
  }
  if (!is_compiled_function(function)) {
    PyErr_Format(PyExc_TypeError, "CompiledMethod() takes a CompiledFunction, got %s",
                 Py_TYPE(function)->tp_name);
    return nullptr;
  }
  return make_compiled_method(function, instance);
}

int traverse_method(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(as_method(object)->function);
  Py_VISIT(as_method(object)->instance);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

// Like a method of Python, it has no tp_clear: it is immutable, and part of no cycle that others
// could not break.
void deallocate_method(PyObject* object) {
  PyObject_GC_UnTrack(object);
  if (as_method(object)->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  Py_DECREF(as_method(object)->function);
  Py_DECREF(as_method(object)->instance);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* compare_methods(PyObject* a, PyObject* b, int operation) {
  if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(a) != Py_TYPE(b)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const bool same = as_method(a)->function == as_method(b)->function &&
                    as_method(a)->instance == as_method(b)->instance;
  return PyBool_FromLong(same == (operation == Py_EQ));
}

// The instance is not asked for a hash.
Py_hash_t hash_method(PyObject* object) {
  const auto bits = [](PyObject* of) { return reinterpret_cast<uintptr_t>(of) >> 4; };
  const auto mixed = static_cast<Py_hash_t>(bits(as_method(object)->function) * 1000003 ^
                                            bits(as_method(object)->instance));
  return mixed == -1 ? -2 : mixed;
}

// What answers questions about the method's programs: null without an error where the function
// does.
PyRef answers_of(const CompiledMethod* self) {
  PyObject* owner = as_compiled(self->function)->owner;
  PyRef of =
      PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(owner)), "of"));
  if (!of) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return {};
  }
  return PyRef::steal(PyObject_CallFunctionObjArgs(of.get(), owner, self->instance, nullptr));
}

PyObject* get_attribute_of_method(PyObject* object, PyObject* name) {
  const CompiledMethod* self = as_method(object);
  const auto is = [name](const char* text) {
    return PyUnicode_CompareWithASCIIString(name, text) == 0;
  };
  const bool is_functions = is("__doc__") || is("__module__");
  if (!is_functions && _PyType_Lookup(Py_TYPE(object), name) != nullptr) {
    return PyObject_GenericGetAttr(object, name);
  }
  const bool is_special = PyUnicode_GET_LENGTH(name) > 0 && PyUnicode_READ_CHAR(name, 0) == '_';
  if (!is_special) {  // names such as __wrapped__ are the function's
    const PyRef answers = answers_of(self);
    if (answers) return PyObject_GetAttr(answers.get(), name);
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_GetAttr(self->function, name);
}

PyObject* represent_method(PyObject* object) {
  return PyUnicode_FromFormat("<compiled method %R of %R>", as_method(object)->function,
                              as_method(object)->instance);
}

// Of isinstance(): code that asks whether something is a method means to call it as one.
PyObject* class_of_method(PyObject*, void*) {
  return Py_NewRef(reinterpret_cast<PyObject*>(&PyMethod_Type));
}

PyObject* reduce_method(PyObject* object, PyObject*) {
  const CompiledMethod* self = as_method(object);
  const PyRef builtins = PyRef::steal(PyImport_ImportModule("builtins"));
  const PyRef getattr =
      PyRef::steal(builtins ? PyObject_GetAttrString(builtins.get(), "getattr") : nullptr);
  const PyRef name =
      PyRef::steal(getattr ? PyObject_GetAttrString(self->function, "__name__") : nullptr);
  return name ? Py_BuildValue("O(OO)", getattr.get(), self->instance, name.get()) : nullptr;
}

PyMethodDef methods_of_method[] = {
    {"__reduce__", reduce_method, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members_of_method[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledMethod, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledMethod, weak_references), READONLY,
     nullptr},
    {"__func__", T_OBJECT_EX, offsetof(CompiledMethod, function), READONLY,
     "The CompiledFunction."},
    {"__self__", T_OBJECT_EX, offsetof(CompiledMethod, instance), READONLY, "What it is bound to."},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef computed_members_of_method[] = {
    {"__class__", class_of_method, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots_of_method[] = {
    {Py_tp_doc, const_cast<char*>("A method compiled by hostjit; call it as the original.")},
    {Py_tp_new, reinterpret_cast<void*>(construct_method)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate_method)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_method)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_getattro, reinterpret_cast<void*>(get_attribute_of_method)},
    {Py_tp_richcompare, reinterpret_cast<void*>(compare_methods)},
    {Py_tp_hash, reinterpret_cast<void*>(hash_method)},
    {Py_tp_repr, reinterpret_cast<void*>(represent_method)},
    {Py_tp_methods, methods_of_method},
    {Py_tp_members, members_of_method},
    {Py_tp_getset, computed_members_of_method},
    {0, nullptr},
};

PyType_Spec method_type_spec = {
    "hostjit._C.CompiledMethod",
    sizeof(CompiledMethod),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    slots_of_method,
};

}  // namespace

PyObject* make_compiled_method(PyObject* function, PyObject* instance) {
  auto* self = PyObject_GC_New(CompiledMethod, method_type);
  if (self == nullptr) return nullptr;
  self->vectorcall = call_method;
  self->function = Py_NewRef(function);
  self->instance = Py_NewRef(instance);
  self->weak_references = nullptr;
  PyObject_GC_Track(self);
  return reinterpret_cast<PyObject*>(self);
}

bool add_compiled_method_type(PyObject* module) {
  // Never released: functions bind until the process ends.
  method_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&method_type_spec));
  return method_type != nullptr &&
         PyModule_AddObjectRef(module, "CompiledMethod",
                               reinterpret_cast<PyObject*>(method_type)) == 0;
}

}  // namespace hostjit
