// SPDX-License-Identifier: Apache-2.0
#include "bindings/watch_list.h"

#include "support/check.h"

namespace hostjit {
namespace {

// 0 means "unknown": never equal to a seen version, so that the slow check decides.
uint64_t current_version(PyObject* object, bool is_type) {
  if (is_type) return reinterpret_cast<PyTypeObject*>(object)->tp_version_tag;
#if PY_VERSION_HEX < 0x030E0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return reinterpret_cast<PyDictObject*>(object)->ma_version_tag;
#pragma GCC diagnostic pop
#else
  return 0;  // no version since CPython 3.14
#endif
}

}  // namespace

void WatchList::add_dict_version(PyObject* dict) {
  HOSTJIT_ICHECK(PyDict_Check(dict), "a watched dict is no dict");
  versions_.push_back({PyRef::share(dict), false, current_version(dict, false)});
}

void WatchList::add_type_version(PyObject* type) {
  HOSTJIT_ICHECK(PyType_Check(type), "a watched type is no type");
  // A look-up through the type makes CPython assign a version if there is none.
  _PyType_Lookup(reinterpret_cast<PyTypeObject*>(type),
                 PyRef::steal(PyUnicode_InternFromString("__dict__")).get());
  versions_.push_back({PyRef::share(type), true, current_version(type, true)});
}

void WatchList::add_dict_item(PyObject* dict, PyObject* key, PyObject* expected) {
  items_.push_back({PyRef::share(dict), PyRef::share(key), PyRef::share(expected)});
}

void WatchList::add_cell(PyObject* cell, PyObject* expected) {
  cells_.push_back({PyRef::share(cell), PyRef::share(expected)});
}

void WatchList::add_items(PyObject* sequence, PyObject* items) {
  sequences_.push_back({PyRef::share(sequence), PyRef::share(items)});
}

bool WatchList::facts_hold() const {
  for (const Item& item : items_) {
    PyObject* found = PyDict_GetItemWithError(item.dict.get(), item.key.get());
    if (found == nullptr && PyErr_Occurred()) PyErr_Clear();
    if (found != item.expected.get()) return false;
  }
  for (const Pair& cell : cells_) {
    if (PyCell_GET(cell.container.get()) != cell.expected.get()) return false;
  }
  for (const Pair& sequence : sequences_) {
    const Py_ssize_t size = PyTuple_GET_SIZE(sequence.expected.get());
    if (PySequence_Fast_GET_SIZE(sequence.container.get()) != size) return false;
    PyObject* const* found = PySequence_Fast_ITEMS(sequence.container.get());
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (found[i] != PyTuple_GET_ITEM(sequence.expected.get(), i)) return false;
    }
  }
  return true;
}

bool WatchList::versions_hold() const {
  for (const Version& version : versions_) {
    const uint64_t current = current_version(version.object.get(), version.is_type);
    if (current != version.seen || current == 0) return false;
  }
  return true;
}

void WatchList::refresh_versions() {
  for (Version& version : versions_) {
    version.seen = current_version(version.object.get(), version.is_type);
  }
}

}  // namespace hostjit
