// SPDX-License-Identifier: Apache-2.0
#include "bindings/module_method.h"

#include <structmember.h>

#include <cstddef>

#include "bindings/function_call.h"
#include "bindings/py_ref.h"

namespace hostjit {
namespace {

struct ModuleMethod {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* compiled;
  PyObject* method;
  PyObject* weak_references;
};

PyTypeObject* type_of_methods = nullptr;

ModuleMethod* as_method(PyObject* object) { return reinterpret_cast<ModuleMethod*>(object); }

PyObject* call(PyObject* object, PyObject* const* values, size_t nargsf, PyObject* kwnames) {
  PyObject* compiled = as_method(object)->compiled;
  PyObject* result = PyObject_Vectorcall(as_method(object)->method, values, nargsf, kwnames);
  if (result == nullptr || result != as_compiled(compiled)->function) return result;
  Py_DECREF(result);
  return Py_NewRef(compiled);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(as_method(object)->compiled);
  Py_VISIT(as_method(object)->method);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

// Like a method of Python, it has no tp_clear.
void deallocate(PyObject* object) {
  PyObject_GC_UnTrack(object);
  if (as_method(object)->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  Py_DECREF(as_method(object)->compiled);
  Py_DECREF(as_method(object)->method);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* compare(PyObject* a, PyObject* b, int operation) {
  const bool both = Py_TYPE(a) == Py_TYPE(b);
  return PyObject_RichCompare(as_method(a)->method, both ? as_method(b)->method : b, operation);
}

Py_hash_t hash(PyObject* object) { return PyObject_Hash(as_method(object)->method); }

PyObject* get_attribute(PyObject* object, PyObject* name) {
  if (_PyType_Lookup(Py_TYPE(object), name) != nullptr &&
      PyUnicode_CompareWithASCIIString(name, "__doc__") != 0) {
    return PyObject_GenericGetAttr(object, name);
  }
  return PyObject_GetAttr(as_method(object)->method, name);
}

PyObject* represent(PyObject* object) { return PyObject_Repr(as_method(object)->method); }

PyObject* class_of(PyObject*, void*) {
  return Py_NewRef(reinterpret_cast<PyObject*>(&PyMethod_Type));
}

PyObject* reduce(PyObject* object, PyObject*) {
  const PyRef builtins = PyRef::steal(PyImport_ImportModule("builtins"));
  const PyRef getattr =
      PyRef::steal(builtins ? PyObject_GetAttrString(builtins.get(), "getattr") : nullptr);
  const PyRef name = PyRef::steal(
      getattr ? PyObject_GetAttrString(as_method(object)->method, "__name__") : nullptr);
  if (!name) return nullptr;
  return Py_BuildValue("O(OO)", getattr.get(), as_method(object)->compiled, name.get());
}

PyMethodDef methods[] = {
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ModuleMethod, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ModuleMethod, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef computed_members[] = {
    {"__class__", class_of, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_getattro, reinterpret_cast<void*>(get_attribute)},
    {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
    {Py_tp_hash, reinterpret_cast<void*>(hash)},
    {Py_tp_repr, reinterpret_cast<void*>(represent)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, computed_members},
    {0, nullptr},
};

PyType_Spec type_spec = {
    "hostjit._C.ModuleMethod",
    sizeof(ModuleMethod),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
        Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    slots,
};

}  // namespace

bool prepare_module_method_type() {
  type_of_methods = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&type_spec));  // never released
  return type_of_methods != nullptr;
}

PyObject* make_module_method(PyObject* compiled, PyObject* method) {
  auto* self = PyObject_GC_New(ModuleMethod, type_of_methods);
  if (self == nullptr) return nullptr;
  self->vectorcall = call;
  self->compiled = Py_NewRef(compiled);
  self->method = Py_NewRef(method);
  self->weak_references = nullptr;
  PyObject_GC_Track(self);
  return reinterpret_cast<PyObject*>(self);
}

}  // namespace hostjit
