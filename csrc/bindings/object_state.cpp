// SPDX-License-Identifier: Apache-2.0
#include "bindings/object_state.h"

#include <pybind11/pybind11.h>
#include <structmember.h>

#include "support/check.h"

namespace hostjit {
namespace {

// Items move within an OrderedDict without a change of the dict that it is.
bool ordered_dict_has_keys(PyObject* dict, PyObject* keys) {
  const PyRef iterator = PyRef::steal(PyODict_Type.tp_iter(dict));
  for (Py_ssize_t i = 0; iterator && i < PyTuple_GET_SIZE(keys); ++i) {
    const PyRef key = PyRef::steal(PyIter_Next(iterator.get()));
    if (!key || key.get() != PyTuple_GET_ITEM(keys, i)) break;
    if (i + 1 == PyTuple_GET_SIZE(keys)) return true;
  }
  PyErr_Clear();
  return PyTuple_GET_SIZE(keys) == 0;
}

// Objects/odictobject.c: what an OrderedDict has behind the dict that it is, as of 3.11 to 3.14.
struct OrderedDict {
  PyDictObject dict;
  void* first;
  void* last;
  void* fast_nodes;
  Py_ssize_t num_fast_nodes;
  void* resize_sentinel;
  size_t state;
};

uint64_t state_of(PyObject* dict) { return reinterpret_cast<OrderedDict*>(dict)->state; }

// Whether each move of an item shows in `state`.
bool counts_moves() {
  if (PyODict_Type.tp_basicsize < static_cast<Py_ssize_t>(sizeof(OrderedDict))) return false;
  const PyRef probe = PyRef::steal(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyODict_Type)));
  bool moved = static_cast<bool>(probe);
  for (const char* name : {"a", "b", "c"}) {
    const PyRef key = PyRef::steal(moved ? PyUnicode_FromString(name) : nullptr);
    moved = key && PyODict_SetItem(probe.get(), key.get(), Py_None) == 0;
  }
  for (const char* name : {"a", "b", "c"}) {
    if (!moved) break;
    const uint64_t before = state_of(probe.get());
    const PyRef done = PyRef::steal(PyObject_CallMethod(probe.get(), "move_to_end", "s", name));
    moved = done && state_of(probe.get()) > before;
  }
  PyErr_Clear();
  return moved;
}

PyRef abc_token() {
  static PyObject* const kFunction = [] {
    const PyRef module = PyRef::steal(PyImport_ImportModule("_abc"));
    return module ? PyObject_GetAttrString(module.get(), "get_cache_token") : nullptr;
  }();
  PyRef found = PyRef::steal(kFunction ? PyObject_CallNoArgs(kFunction) : nullptr);
  if (!found) PyErr_Clear();
  return found;
}

}  // namespace

const uint64_t* version_of(PyObject* dict) {
#if PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const auto* object = reinterpret_cast<PyDictObject*>(dict);
#if PY_VERSION_HEX >= 0x030D0000
  // 3.13 changes attributes without the version of a dict that shares its values with the object.
  if (object->ma_values != nullptr) return nullptr;
#endif
  return &object->ma_version_tag;
#pragma GCC diagnostic pop
#else
  (void)dict;
  return nullptr;
#endif
}

const uint64_t* moves_of(PyObject* ordered_dict) {
  static_assert(sizeof(size_t) == sizeof(uint64_t));
  static const bool kKnown = counts_moves();
  if (!kKnown) return nullptr;
  return reinterpret_cast<const uint64_t*>(&reinterpret_cast<OrderedDict*>(ordered_dict)->state);
}

PyRef keys_in_order(PyObject* ordered_dict) {
  const PyRef iterator = PyRef::steal(PyODict_Type.tp_iter(ordered_dict));
  PyRef keys = PyRef::steal(iterator ? PySequence_Tuple(iterator.get()) : nullptr);
  if (!keys) throw pybind11::error_already_set();
  return keys;
}

PyObject* const* field_of(PyObject* object, std::string_view name) {
  if (PyFunction_Check(object)) {
    auto* function = reinterpret_cast<PyFunctionObject*>(object);
    if (name == "__name__") return &function->func_name;
    if (name == "__qualname__") return &function->func_qualname;
    if (name == "__doc__") return &function->func_doc;
    if (name == "__module__") return &function->func_module;
    if (name == "__annotations__") return &function->func_annotations;
  } else if (PyType_Check(object) &&
             PyType_HasFeature(reinterpret_cast<PyTypeObject*>(object), Py_TPFLAGS_HEAPTYPE)) {
    auto* type = reinterpret_cast<PyHeapTypeObject*>(object);
    if (name == "__name__") return &type->ht_name;
    if (name == "__qualname__") return &type->ht_qualname;
  }
  return nullptr;
}

PyObject* const* slot_of(PyObject* object, PyObject* member) {
  HOSTJIT_ICHECK(Py_TYPE(member) == &PyMemberDescr_Type, "a slot is a ", Py_TYPE(member)->tp_name,
                 ", expected a member descriptor");
  const PyMemberDef& slot = *reinterpret_cast<PyMemberDescrObject*>(member)->d_member;
  if (slot.type != T_OBJECT && slot.type != T_OBJECT_EX) return nullptr;
  return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + slot.offset);
}

uint32_t version_of_type(PyTypeObject* type) {
  const PyRef name = PyRef::steal(PyUnicode_InternFromString("__doc__"));
  _PyType_Lookup(type, name.get());
  return type->tp_version_tag != 0 ? type->tp_version_tag : ~uint32_t{0};
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

PyRef dict_of(PyObject* owner) {
  PyRef found = PyRef::steal(PyObject_GenericGetDict(owner, nullptr));
  if (!found) PyErr_Clear();
  return found;
}

PyObject* const* dict_place_of([[maybe_unused]] PyObject* owner) {
#if PY_VERSION_HEX < 0x030D0000
  return _PyObject_GetDictPtr(owner);
#else
  return nullptr;
#endif
}

bool has_own_attributes(PyObject* object) {
#if PY_VERSION_HEX < 0x030D0000
  PyObject** place = _PyObject_GetDictPtr(object);  // makes no dict for a tensor that has none
  PyObject* found = place != nullptr ? *place : nullptr;
  return found != nullptr && PyDict_GET_SIZE(found) != 0;
#else
  if (Py_TYPE(object)->tp_dictoffset == 0) return false;
  const PyRef found = PyRef::steal(PyObject_GenericGetDict(object, nullptr));
  if (!found) PyErr_Clear();
  return !found || PyDict_GET_SIZE(found.get()) != 0;
#endif
}

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

bool set_is(PyObject* set, PyObject* items) {
  if (PySet_GET_SIZE(set) != PyTuple_GET_SIZE(items)) return false;
  const PyRef iterator = PyRef::steal(PySet_Type.tp_iter(set));  // of subclasses, too
  if (!iterator) PyErr_Clear();
  bool same = static_cast<bool>(iterator);
  for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(items); ++i) {
    const PyRef item = PyRef::steal(PyIter_Next(iterator.get()));
    same = item.get() == PyTuple_GET_ITEM(items, i);
  }
  return same;
}

bool dict_has_keys(PyObject* dict, PyObject* keys) {
  if (PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  if (PyODict_Check(dict)) return ordered_dict_has_keys(dict, keys);
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, nullptr) != 0; ++i) {
    if (key != PyTuple_GET_ITEM(keys, i)) return false;
  }
  return true;
}

bool is_deque(PyObject* object) {
  static const PyObject* const kType = [] {
    const PyRef module = PyRef::steal(PyImport_ImportModule("collections"));
    PyObject* type = module ? PyObject_GetAttrString(module.get(), "deque") : nullptr;
    if (type == nullptr) PyErr_Clear();
    return type;
  }();
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == kType;
}

std::vector<PyObject*> items_of(PyObject* list_or_deque) {
  // A list of its own for a deque, which holds the same.
  const PyRef list = PyRef::steal(PySequence_Fast(list_or_deque, "expected a list or a deque"));
  if (!list) throw pybind11::error_already_set();
  PyObject** const first = PySequence_Fast_ITEMS(list.get());
  return {first, first + PySequence_Fast_GET_SIZE(list.get())};
}

PyRef limit_of(PyObject* deque) {
  PyRef limit = PyRef::steal(PyObject_GetAttrString(deque, "maxlen"));
  if (!limit) throw pybind11::error_already_set();
  return limit;
}

bool abc_token_is(PyObject* expected) {
  const PyRef found = abc_token();
  return found && PyObject_RichCompareBool(found.get(), expected, Py_EQ) == 1;
}

}  // namespace hostjit
