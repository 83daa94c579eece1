// SPDX-License-Identifier: Apache-2.0
#include "bindings/watch_list.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "support/check.h"

namespace hostjit {
namespace {

// 0: unknown.
uint64_t dict_version(PyObject* dict) {
#if PY_VERSION_HEX < 0x030E0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
#else
  (void)dict;
  return 0;
#endif
}

bool is_dict_of(PyObject* owner, PyObject* dict) {
#if PY_VERSION_HEX < 0x030D0000
  PyObject** found = _PyObject_GetDictPtr(owner);
  return found != nullptr && *found == dict;
#else
  const PyRef found = PyRef::steal(PyObject_GenericGetDict(owner, nullptr));
  if (!found) PyErr_Clear();
  return found.get() == dict;
#endif
}

// Null stands for "no such key"; errors of a key's own comparison count as a difference.
bool has_items(PyObject* dict, PyObject* keys, PyObject* expected, PyObject* missing) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
    PyObject* found = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(keys, i));
    if (found == nullptr && PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
    PyObject* wanted = PyTuple_GET_ITEM(expected, i);
    if (found != (wanted == missing ? nullptr : wanted)) return false;
  }
  return true;
}

bool list_is(PyObject* list, PyObject* items) {
  if (PyList_GET_SIZE(list) != PyTuple_GET_SIZE(items)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    if (PyList_GET_ITEM(list, i) != PyTuple_GET_ITEM(items, i)) return false;
  }
  return true;
}

bool set_is(PyObject* set, PyObject* items) {
  if (PySet_GET_SIZE(set) != PyTuple_GET_SIZE(items)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    if (PySet_Contains(set, PyTuple_GET_ITEM(items, i)) != 1) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

PyObject* null_for_none(PyObject* object) { return object == Py_None ? nullptr : object; }

}  // namespace

bool WatchList::Dict::holds() {
  const uint64_t current = dict_version(dict.get());
  if (owner && !is_dict_of(owner.get(), dict.get())) return false;
  if (current == seen && current != 0) return true;
  if (!keys || !has_items(dict.get(), keys.get(), expected.get(), missing.get())) return false;
  seen = current;
  return true;
}

void WatchList::add_dict(PyObject* dict, PyObject* owner) {
  HOSTJIT_ICHECK(PyDict_Check(dict), "a watched dict is a ", Py_TYPE(dict)->tp_name);
  dicts_.push_back({PyRef::share(dict), PyRef::share(owner), {}, {}, {}, dict_version(dict)});
}

void WatchList::add_dict_items(PyObject* dict, PyObject* owner, PyObject* keys, PyObject* expected,
                               PyObject* missing) {
  HOSTJIT_ICHECK(PyDict_Check(dict) && PyTuple_Check(keys) && PyTuple_Check(expected) &&
                     PyTuple_GET_SIZE(keys) == PyTuple_GET_SIZE(expected),
                 "a dict watch needs a dict and tuples of one length");
  dicts_.push_back({PyRef::share(dict), PyRef::share(owner), PyRef::share(keys),
                    PyRef::share(expected), PyRef::share(missing), /*seen=*/0});
}

void WatchList::add_cell(PyObject* cell, PyObject* expected) {
  HOSTJIT_ICHECK(PyCell_Check(cell), "a watched cell is a ", Py_TYPE(cell)->tp_name);
  cells_.push_back({PyRef::share(cell), PyRef::share(expected)});
}

void WatchList::add_list(PyObject* list, PyObject* items) {
  HOSTJIT_ICHECK(PyList_Check(list) && PyTuple_Check(items), "a list watch needs a list");
  lists_.push_back({PyRef::share(list), PyRef::share(items)});
}

void WatchList::add_set(PyObject* set, PyObject* items) {
  HOSTJIT_ICHECK(PyAnySet_Check(set) && PyTuple_Check(items), "a set watch needs a set");
  sets_.push_back({PyRef::share(set), PyRef::share(items)});
}

void WatchList::add_type(PyObject* type) {
  HOSTJIT_ICHECK(PyType_Check(type), "a watched type is a ", Py_TYPE(type)->tp_name);
  // CPython gives a type its version at the first look-up through it.
  const PyRef name = PyRef::steal(PyUnicode_InternFromString("__doc__"));
  _PyType_Lookup(reinterpret_cast<PyTypeObject*>(type), name.get());
  types_.push_back({PyRef::share(type), reinterpret_cast<PyTypeObject*>(type)->tp_version_tag});
}

void WatchList::add_object_type(PyObject* object, PyObject* type) {
  object_types_.push_back({PyRef::share(object), PyRef::share(type)});
}

void WatchList::add_function(PyObject* function, PyObject* code, PyObject* defaults,
                             PyObject* kwdefaults) {
  HOSTJIT_ICHECK(PyFunction_Check(function), "a watched function is a ",
                 Py_TYPE(function)->tp_name);
  functions_.push_back({PyRef::share(function), PyRef::share(code),
                        PyRef::share(null_for_none(defaults)),
                        PyRef::share(null_for_none(kwdefaults))});
}

void WatchList::add_tensor(PyObject* tensor) {
  HOSTJIT_ICHECK(THPVariable_Check(tensor), "a watched tensor is a ", Py_TYPE(tensor)->tp_name);
  tensors_.push_back({PyRef::share(tensor), TensorGuard(THPVariable_Unpack(tensor))});
}

bool WatchList::holds() {
  return std::ranges::all_of(dicts_, &Dict::holds) &&
         std::ranges::all_of(types_,
                             [](const Version& entry) {
                               const auto* type = reinterpret_cast<PyTypeObject*>(entry.type.get());
                               return type->tp_version_tag == entry.seen && entry.seen != 0;
                             }) &&
         std::ranges::all_of(object_types_,
                             [](const Pair& entry) {
                               return reinterpret_cast<PyObject*>(Py_TYPE(entry.object.get())) ==
                                      entry.expected.get();
                             }) &&
         std::ranges::all_of(cells_,
                             [](const Pair& entry) {
                               return PyCell_GET(entry.object.get()) == entry.expected.get();
                             }) &&
         std::ranges::all_of(
             functions_,
             [](const Function& entry) {
               const auto* function = reinterpret_cast<PyFunctionObject*>(entry.function.get());
               return function->func_code == entry.code.get() &&
                      null_for_none(function->func_defaults) == entry.defaults.get() &&
                      null_for_none(function->func_kwdefaults) == entry.kwdefaults.get();
             }) &&
         std::ranges::all_of(tensors_,
                             [](const Tensor& entry) {
                               return entry.guard.matches(THPVariable_Unpack(entry.tensor.get()));
                             }) &&
         std::ranges::all_of(
             lists_,
             [](const Pair& entry) { return list_is(entry.object.get(), entry.expected.get()); }) &&
         std::ranges::all_of(sets_, [](const Pair& entry) {
           return set_is(entry.object.get(), entry.expected.get());
         });
}

int WatchList::traverse(visitproc visit, void* arg) const {
  for (const Dict& entry : dicts_) {
    Py_VISIT(entry.dict.get());
    Py_VISIT(entry.owner.get());
    Py_VISIT(entry.keys.get());
    Py_VISIT(entry.expected.get());
    Py_VISIT(entry.missing.get());
  }
  for (const auto* pairs : {&cells_, &lists_, &sets_, &object_types_}) {
    for (const Pair& entry : *pairs) {
      Py_VISIT(entry.object.get());
      Py_VISIT(entry.expected.get());
    }
  }
  for (const Version& entry : types_) Py_VISIT(entry.type.get());
  for (const Function& entry : functions_) {
    Py_VISIT(entry.function.get());
    Py_VISIT(entry.code.get());
    Py_VISIT(entry.defaults.get());
    Py_VISIT(entry.kwdefaults.get());
  }
  for (const Tensor& entry : tensors_) Py_VISIT(entry.tensor.get());
  return 0;
}

}  // namespace hostjit
