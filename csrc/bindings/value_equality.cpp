// SPDX-License-Identifier: Apache-2.0
#include "bindings/value_equality.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Size.h>

#include <bit>
#include <cstdint>

#include "bindings/py_ref.h"

namespace hostjit {
namespace {

// Whether a class of tuples has names for its items. Objects of it are not asked.
bool has_fields(PyTypeObject* type) {
  const PyRef name = PyRef::steal(PyUnicode_InternFromString("_fields"));
  PyObject* fields = name ? _PyType_Lookup(type, name.get()) : nullptr;
  return fields != nullptr && PyTuple_Check(fields);
}

// Whether attributes of two objects are the same.
bool equal_attribute(PyObject* a, PyObject* b, const char* name) {
  const PyRef of_a = PyRef::steal(PyObject_GetAttrString(a, name));
  const PyRef of_b = PyRef::steal(PyObject_GetAttrString(b, name));
  if (!of_a || !of_b) PyErr_Clear();
  return of_a && of_b && equal(of_a.get(), of_b.get());
}

}  // namespace

bool is_plain_tuple(PyObject* value) {
  return PyTuple_CheckExact(value) || THPSize_Check(value) ||
         (PyTuple_Check(value) && has_fields(Py_TYPE(value)));
}

bool compares_by_value(PyObject* value) {
  return PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) ||
         PyRange_Check(value) || PySlice_Check(value) || PyCFunction_CheckExact(value) ||
         THPDevice_Check(value);
}

bool iterates_as_stored(PyObject* dict) {
  if (PyDict_CheckExact(dict)) return true;
  if (!PyODict_CheckExact(dict)) return false;
  const PyRef keys = PyRef::steal(PySequence_List(dict));
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  for (Py_ssize_t i = 0; keys && PyDict_Next(dict, &position, &key, &value); ++i) {
    if (key != PyList_GET_ITEM(keys.get(), i)) return false;
  }
  return static_cast<bool>(keys);
}

bool equal(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    return std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(a)) ==
           std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(b));
  }
  if (PyTuple_CheckExact(a)) {
    const Py_ssize_t size = PyTuple_GET_SIZE(a);
    if (PyTuple_GET_SIZE(b) != size) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    }
    return true;
  }
  if (PyRange_Check(a) || PySlice_Check(a)) {  // equal ones may have other ends
    return equal_attribute(a, b, "start") && equal_attribute(a, b, "stop") &&
           equal_attribute(a, b, "step");
  }
  // Methods are the same if they are bound to one object.
  if (!PyLong_CheckExact(a) && !PyUnicode_CheckExact(a) && !PyBytes_CheckExact(a) &&
      !PyCFunction_CheckExact(a) && !THPDevice_Check(a)) {
    return false;
  }
  const int result = PyObject_RichCompareBool(a, b, Py_EQ);
  if (result < 0) PyErr_Clear();
  return result == 1;
}

}  // namespace hostjit
