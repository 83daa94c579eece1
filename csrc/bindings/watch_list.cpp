// SPDX-License-Identifier: Apache-2.0
#include "bindings/watch_list.h"

#include <ATen/SavedTensorHooks.h>
#include <structmember.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <string_view>

#include "support/check.h"

namespace hostjit {
namespace {

// Where CPython keeps the version of a dict, which every change makes another. Null: nowhere.
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

// Where a function or a class of Python code keeps an attribute; null where it keeps no such one.
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

// abc.get_cache_token: another number after each registration.
PyRef abc_token() {
  static PyObject* const kFunction = [] {
    const PyRef module = PyRef::steal(PyImport_ImportModule("_abc"));
    return module ? PyObject_GetAttrString(module.get(), "get_cache_token") : nullptr;
  }();
  PyRef found = PyRef::steal(kFunction ? PyObject_CallNoArgs(kFunction) : nullptr);
  if (!found) PyErr_Clear();
  return found;
}

bool abc_token_is(PyObject* expected) {
  const PyRef found = abc_token();
  return found && PyObject_RichCompareBool(found.get(), expected, Py_EQ) == 1;
}

PyObject* null_for_none(PyObject* object) { return object == Py_None ? nullptr : object; }

}  // namespace

bool WatchList::Dict::holds() {
  if (owner && !is_dict_of(owner.get(), dict.get())) return false;
  const uint64_t* current = version_of(dict.get());
  if (current != nullptr && *current == version) return true;
  if (size >= 0 && PyDict_Size(dict.get()) != size) return false;
  if (!keys || !has_items(dict.get(), keys.get(), expected.get(), missing.get())) return false;
  if (current != nullptr) version = *current;
  return true;
}

bool WatchList::List::holds() const {
  PyObject* list = object.get();
  PyObject* items = expected.get();
  if (PyList_GET_SIZE(list) != PyTuple_GET_SIZE(items)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items, i);
    if (PyList_GET_ITEM(list, i) != item && item != any.get()) return false;
  }
  return true;
}

bool WatchList::take(PyRef& expected, const std::vector<PyObject*>& found, const Replace& replace) {
  const auto size = static_cast<Py_ssize_t>(found.size());
  bool differs = false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* before = PyTuple_GET_ITEM(expected.get(), i);
    if (found[static_cast<size_t>(i)] == before) continue;
    if (!replace(before, found[static_cast<size_t>(i)])) return false;
    differs = true;
  }
  if (!differs) return true;
  PyRef renewed = PyRef::steal(PyTuple_New(size));
  if (!renewed) throw pybind11::error_already_set();
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyTuple_SET_ITEM(renewed.get(), i, Py_NewRef(found[static_cast<size_t>(i)]));
  }
  expected = std::move(renewed);
  return true;
}

bool WatchList::take_from_dict(Dict& entry, const Replace& replace) {
  const uint64_t* current = version_of(entry.dict.get());
  if (!entry.keys || (current != nullptr && *current == entry.version)) return true;
  std::vector<PyObject*> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entry.keys.get()); ++i) {
    PyObject* key = PyTuple_GET_ITEM(entry.keys.get(), i);
    PyObject* value = PyDict_GetItemWithError(entry.dict.get(), key);
    if (value == nullptr) PyErr_Clear();
    found.push_back(value != nullptr ? value : entry.missing.get());
  }
  return take(entry.expected, found, replace);
}

bool WatchList::take_from_list(List& entry, const Replace& replace) {
  PyObject* list = entry.object.get();
  const Py_ssize_t size = PyList_GET_SIZE(list);
  if (size != PyTuple_GET_SIZE(entry.expected.get())) return false;
  std::vector<PyObject*> found;
  found.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PyTuple_GET_ITEM(entry.expected.get(), i);
    found.push_back(item == entry.any.get() ? item : PyList_GET_ITEM(list, i));
  }
  return take(entry.expected, found, replace);
}

bool WatchList::holds_after(const Replace& replace) {
  return std::ranges::all_of(dicts_, [&](Dict& entry) { return take_from_dict(entry, replace); }) &&
         std::ranges::all_of(lists_, [&](List& entry) { return take_from_list(entry, replace); }) &&
         holds_on_a_closer_look();
}

bool WatchList::dicts_hold() {
  if (!std::ranges::all_of(dicts_, [](Dict& entry) { return entry.holds(); })) return false;
  sum_of_versions_ = 0;
  for (const Dict& entry : dicts_) sum_of_versions_ += entry.version >> kVersionShift;
  return true;
}

// Sends every check to the closer look.
constexpr uint64_t kZero = 0;
const WatchList::Word WatchList::kNever{&kZero, 1};

void WatchList::watch_pointer(PyObject* const* address, PyObject* expected) {
  static_assert(sizeof(PyObject*) == sizeof(uint64_t));
  words_.push_back(
      {reinterpret_cast<const uint64_t*>(address), reinterpret_cast<uint64_t>(expected)});
}

// `unchanged`: what is watched holds now; otherwise the first look decides.
void WatchList::add_dict_entry(Dict entry, bool unchanged) {
  if (const uint64_t* version = version_of(entry.dict.get())) {
    versions_.push_back(version);
    if (unchanged) entry.version = *version;  // otherwise 0, which no dict has
    sum_of_versions_ += entry.version >> kVersionShift;
  } else {
    words_.push_back(kNever);
  }
#if PY_VERSION_HEX < 0x030D0000
  if (entry.owner) {
    // The place of an object's dict does not move while the object lives.
    PyObject** place = _PyObject_GetDictPtr(entry.owner.get());
    if (place != nullptr) watch_pointer(place, entry.dict.get());
    if (place == nullptr) words_.push_back(kNever);
  }
#else
  if (entry.owner) words_.push_back(kNever);  // has to be asked for at every call
#endif
  dicts_.push_back(std::move(entry));
}

void WatchList::add_dict(PyObject* dict, PyObject* owner) {
  HOSTJIT_ICHECK(PyDict_Check(dict), "a watched dict is a ", Py_TYPE(dict)->tp_name);
  add_dict_entry({PyRef::share(dict), PyRef::share(owner), {}, {}, {}, /*version=*/0},
                 /*unchanged=*/true);
}

void WatchList::add_dict_items(PyObject* dict, PyObject* owner, PyObject* keys, PyObject* expected,
                               PyObject* missing) {
  HOSTJIT_ICHECK(PyDict_Check(dict) && PyTuple_Check(keys) && PyTuple_Check(expected) &&
                     PyTuple_GET_SIZE(keys) == PyTuple_GET_SIZE(expected),
                 "a dict watch needs a dict and tuples of one length");
  add_dict_entry({PyRef::share(dict), PyRef::share(owner), PyRef::share(keys),
                  PyRef::share(expected), PyRef::share(missing), /*version=*/0},
                 /*unchanged=*/false);
}

void WatchList::add_cell(PyObject* cell, PyObject* expected) {
  HOSTJIT_ICHECK(PyCell_Check(cell), "a watched cell is a ", Py_TYPE(cell)->tp_name);
  watch_pointer(&reinterpret_cast<PyCellObject*>(cell)->ob_ref, expected);
  cells_.push_back({PyRef::share(cell), PyRef::share(expected)});
}

void WatchList::add_dict_keys(PyObject* dict, PyObject* keys) {
  HOSTJIT_ICHECK(PyDict_Check(dict) && PyTuple_Check(keys), "a watch of keys needs a dict");
  has_others_ = true;
  dict_keys_.push_back({PyRef::share(dict), PyRef::share(keys)});
}

void WatchList::add_list(PyObject* list, PyObject* items, PyObject* any) {
  HOSTJIT_ICHECK(PyList_Check(list) && PyTuple_Check(items), "a list watch needs a list");
  has_others_ = true;
  lists_.push_back({PyRef::share(list), PyRef::share(items), PyRef::share(any)});
}

void WatchList::add_set(PyObject* set, PyObject* items) {
  HOSTJIT_ICHECK(PyAnySet_Check(set) && PyTuple_Check(items), "a set watch needs a set");
  has_others_ = true;
  sets_.push_back({PyRef::share(set), PyRef::share(items)});
}

void WatchList::add_type(PyObject* object) {
  HOSTJIT_ICHECK(PyType_Check(object), "a watched type is a ", Py_TYPE(object)->tp_name);
  // CPython gives a type its version at the first look-up through it.
  const PyRef name = PyRef::steal(PyUnicode_InternFromString("__doc__"));
  const auto* type = reinterpret_cast<PyTypeObject*>(object);
  _PyType_Lookup(const_cast<PyTypeObject*>(type), name.get());
  // 0 stands for a type that has none: no version that a type gets is the expected one.
  const uint32_t version = type->tp_version_tag;
  half_words_.push_back({&type->tp_version_tag, version != 0 ? version : ~uint32_t{0}});
  types_.push_back(PyRef::share(object));
}

void WatchList::add_type_but(PyObject* object, PyObject* open) {
  HOSTJIT_ICHECK(PyType_Check(object) && PyDict_Check(open), "a watched type is a ",
                 Py_TYPE(object)->tp_name);
  const auto* type = reinterpret_cast<PyTypeObject*>(object);
  PyObject* bases = type->tp_mro;
  watch_pointer(&type->tp_mro, bases);
  bases_.push_back({PyRef::share(object), PyRef::share(bases)});
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); ++i) {
    PyObject* base = PyTuple_GET_ITEM(bases, i);
    if ((reinterpret_cast<PyTypeObject*>(base)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) continue;
    add_class_items(base, PyDict_GetItemWithError(open, base));
  }
}

// All of a class's own attributes, but those of `open`, a tuple of names or null.
void WatchList::add_class_items(PyObject* type, PyObject* open) {
  PyObject* dict = reinterpret_cast<PyTypeObject*>(type)->tp_dict;
  const PyRef keys = PyRef::steal(PyList_New(0));
  const PyRef expected = PyRef::steal(PyList_New(0));
  if (!keys || !expected) throw pybind11::error_already_set();
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value) != 0) {
    if (open != nullptr && PySequence_Contains(open, key) == 1) continue;
    if (PyList_Append(keys.get(), key) < 0 || PyList_Append(expected.get(), value) < 0) {
      throw pybind11::error_already_set();
    }
  }
  const PyRef names = PyRef::steal(PyList_AsTuple(keys.get()));
  const PyRef values = PyRef::steal(PyList_AsTuple(expected.get()));
  if (!names || !values) throw pybind11::error_already_set();
  // No value of the class is the tuple of names, which stands for a missing one.
  add_dict_entry({PyRef::share(dict), {}, names, values, names, /*version=*/0, PyDict_Size(dict)},
                 /*unchanged=*/true);
}

void WatchList::add_object_type(PyObject* object, PyObject* type) {
  watch_pointer(reinterpret_cast<PyObject**>(&object->ob_type), type);
  object_types_.push_back({PyRef::share(object), PyRef::share(type)});
}

void WatchList::add_function(PyObject* function, PyObject* code, PyObject* defaults,
                             PyObject* kwdefaults) {
  HOSTJIT_ICHECK(PyFunction_Check(function), "a watched function is a ",
                 Py_TYPE(function)->tp_name);
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  watch_pointer(&object->func_code, code);
  // Null and None mean the same; where a function has the other one, the closer look finds it so.
  watch_pointer(&object->func_defaults, null_for_none(defaults));
  watch_pointer(&object->func_kwdefaults, null_for_none(kwdefaults));
  functions_.push_back({PyRef::share(function), PyRef::share(code),
                        PyRef::share(null_for_none(defaults)),
                        PyRef::share(null_for_none(kwdefaults))});
}

void WatchList::add_fields(PyObject* object, PyObject* names) {
  HOSTJIT_ICHECK(PyTuple_Check(names), "watched fields need a tuple of names");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
    if (name == nullptr) throw pybind11::error_already_set();
    PyObject* const* address = field_of(object, name);
    HOSTJIT_ICHECK(address != nullptr, "a ", Py_TYPE(object)->tp_name, " has no field '", name,
                   "'");
    watch_pointer(address, *address);
    fields_.push_back({PyRef::share(object), address, PyRef::share(*address)});
  }
}

void WatchList::add_slots(PyObject* object, PyObject* members) {
  HOSTJIT_ICHECK(PyTuple_Check(members), "watched slots need a tuple of members");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members); ++i) {
    PyObject* member = PyTuple_GET_ITEM(members, i);
    HOSTJIT_ICHECK(Py_TYPE(member) == &PyMemberDescr_Type, "a slot is a ", Py_TYPE(member)->tp_name,
                   ", expected a member descriptor");
    const PyMemberDef& slot = *reinterpret_cast<PyMemberDescrObject*>(member)->d_member;
    if (slot.type != T_OBJECT && slot.type != T_OBJECT_EX) {
      words_.push_back(kNever);  // has to be asked for at every call
      continue;
    }
    auto* address = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + slot.offset);
    watch_pointer(address, *address);
    fields_.push_back({PyRef::share(object), address, PyRef::share(*address)});
  }
}

void WatchList::add_tensor(PyObject* tensor) {
  HOSTJIT_ICHECK(THPVariable_Check(tensor), "a watched tensor is a ", Py_TYPE(tensor)->tp_name);
  has_others_ = true;
  tensors_.push_back({PyRef::share(tensor), TensorGuard(THPVariable_Unpack(tensor))});
}

void WatchList::add_no_gradient(PyObject* tensor) {
  HOSTJIT_ICHECK(THPVariable_Check(tensor), "no_gradient is of a ", Py_TYPE(tensor)->tp_name,
                 ", expected a tensor");
  has_others_ = true;
  without_gradient_.push_back(PyRef::share(tensor));
}

void WatchList::add_has_gradient(PyObject* tensor) {
  HOSTJIT_ICHECK(THPVariable_Check(tensor), "has_gradient is of a ", Py_TYPE(tensor)->tp_name,
                 ", expected a tensor");
  has_others_ = true;
  with_gradient_.push_back(PyRef::share(tensor));
}

void WatchList::add_gradient(PyObject* tensor) {
  HOSTJIT_ICHECK(THPVariable_Check(tensor), "gradient is of a ", Py_TYPE(tensor)->tp_name,
                 ", expected a tensor");
  const at::Tensor& gradient = THPVariable_Unpack(tensor).grad();
  HOSTJIT_CHECK(gradient.defined(), "a watched gradient is None");
  has_others_ = true;
  gradients_.push_back({PyRef::share(tensor), TensorGuard(gradient)});
}

bool WatchList::reaches_gradient(std::span<const c10::TensorImpl* const> tensors) const {
  c10::SmallVector<const c10::TensorImpl*, 32> found;
  for (const Tensor& entry : gradients_) {
    found.push_back(THPVariable_Unpack(entry.tensor.get()).grad().unsafeGetTensorImpl());
  }
  std::ranges::sort(found, std::less<>());
  return std::ranges::adjacent_find(found) != found.end() ||
         std::ranges::any_of(found, [&](const c10::TensorImpl* gradient) {
           return std::ranges::binary_search(tensors, gradient, std::less<>());
         });
}

void WatchList::add_unwritten(PyObject* tensor) {
  HOSTJIT_ICHECK(THPVariable_Check(tensor), "unwritten is of a ", Py_TYPE(tensor)->tp_name,
                 ", expected a tensor");
  has_others_ = true;
  const at::Tensor& found = THPVariable_Unpack(tensor);
  unwritten_.push_back({PyRef::share(tensor), found.const_data_ptr(),
                        found.unsafeGetTensorImpl()->version_counter().current_version()});
}

void WatchList::add_abc_token(PyObject* token) {
  HOSTJIT_ICHECK(PyLong_Check(token), "an abc_token is a ", Py_TYPE(token)->tp_name,
                 ", expected an int");
  has_others_ = true;
  abc_token_ = PyRef::share(token);
}

void WatchList::add_hooks(PyObject* tensor) {
  HOSTJIT_ICHECK(THPVariable_Check(tensor), "hooks are of a ", Py_TYPE(tensor)->tp_name,
                 ", expected a tensor");
  auto& variable = *reinterpret_cast<THPVariable*>(tensor);
  for (PyObject** address : {&variable.backward_hooks, &variable.post_accumulate_grad_hooks}) {
    watch_pointer(address, *address);
    fields_.push_back({PyRef::share(tensor), address, PyRef::share(*address)});
  }
}

void WatchList::add_plain_backward() {
  has_others_ = true;
  plain_backward_ = true;
}

bool WatchList::Unwritten::holds() const {
  const at::Tensor& found = THPVariable_Unpack(tensor.get());
  return found.const_data_ptr() == data &&
         found.unsafeGetTensorImpl()->version_counter().current_version() == version;
}

bool WatchList::others_hold() const {
  return std::ranges::all_of(tensors_,
                             [](const Tensor& entry) {
                               return entry.guard.matches(THPVariable_Unpack(entry.tensor.get()));
                             }) &&
         std::ranges::none_of(without_gradient_,
                              [](const PyRef& tensor) {
                                return THPVariable_Unpack(tensor.get()).grad().defined();
                              }) &&
         std::ranges::all_of(with_gradient_,
                             [](const PyRef& tensor) {
                               return THPVariable_Unpack(tensor.get()).grad().defined();
                             }) &&
         std::ranges::all_of(gradients_,
                             [](const Tensor& entry) {
                               const at::Tensor& found =
                                   THPVariable_Unpack(entry.tensor.get()).grad();
                               return found.defined() && entry.guard.matches(found);
                             }) &&
         std::ranges::all_of(unwritten_, [](const Unwritten& entry) { return entry.holds(); }) &&
         std::ranges::all_of(lists_, [](const List& entry) { return entry.holds(); }) &&
         std::ranges::all_of(
             sets_,
             [](const Pair& entry) { return set_is(entry.object.get(), entry.expected.get()); }) &&
         std::ranges::all_of(dict_keys_,
                             [](const Pair& entry) {
                               return dict_has_keys(entry.object.get(), entry.expected.get());
                             }) &&
         (!abc_token_ || abc_token_is(abc_token_.get())) &&
         (!plain_backward_ || (!torch::autograd::AnomalyMode::is_enabled() &&
                               !at::SavedTensorDefaultHooks::get_hooks()));
}

bool WatchList::holds_on_a_closer_look() {
  return dicts_hold() &&
         std::ranges::all_of(half_words_,
                             [](const HalfWord& word) { return *word.address == word.expected; }) &&
         std::ranges::all_of(object_types_,
                             [](const Pair& entry) {
                               return reinterpret_cast<PyObject*>(Py_TYPE(entry.object.get())) ==
                                      entry.expected.get();
                             }) &&
         std::ranges::all_of(bases_,
                             [](const Pair& entry) {
                               return reinterpret_cast<PyTypeObject*>(entry.object.get())->tp_mro ==
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
         std::ranges::all_of(
             fields_, [](const Field& entry) { return *entry.address == entry.expected.get(); }) &&
         others_hold();
}

std::vector<PyObject*> WatchList::containers() const {
  std::vector<PyObject*> found;
  const auto add = [&](PyObject* object) {
    if (object != nullptr && (PyList_Check(object) || PyDict_Check(object))) {
      found.push_back(object);
    }
  };
  const auto add_items = [&](PyObject* tuple) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) add(PyTuple_GET_ITEM(tuple, i));
  };
  for (const Dict& entry : dicts_) {
    add(entry.dict.get());
    if (entry.keys) add_items(entry.expected.get());
    PyObject* value = nullptr;
    Py_ssize_t position = 0;
    while (!entry.keys && PyDict_Next(entry.dict.get(), &position, nullptr, &value)) add(value);
  }
  for (const Pair& entry : dict_keys_) add(entry.object.get());
  for (const Pair& entry : cells_) add(entry.expected.get());
  for (const List& entry : lists_) {
    add(entry.object.get());
    add_items(entry.expected.get());
  }
  std::ranges::sort(found);
  return found;
}

int WatchList::traverse(visitproc visit, void* arg) const {
  for (const Dict& entry : dicts_) {
    Py_VISIT(entry.dict.get());
    Py_VISIT(entry.owner.get());
    Py_VISIT(entry.keys.get());
    Py_VISIT(entry.expected.get());
    Py_VISIT(entry.missing.get());
  }
  for (const auto* pairs : {&cells_, &sets_, &dict_keys_, &object_types_, &bases_}) {
    for (const Pair& entry : *pairs) {
      Py_VISIT(entry.object.get());
      Py_VISIT(entry.expected.get());
    }
  }
  for (const List& entry : lists_) {
    Py_VISIT(entry.object.get());
    Py_VISIT(entry.expected.get());
    Py_VISIT(entry.any.get());
  }
  for (const PyRef& type : types_) Py_VISIT(type.get());
  for (const Function& entry : functions_) {
    Py_VISIT(entry.function.get());
    Py_VISIT(entry.code.get());
    Py_VISIT(entry.defaults.get());
    Py_VISIT(entry.kwdefaults.get());
  }
  for (const Field& entry : fields_) {
    Py_VISIT(entry.object.get());
    Py_VISIT(entry.expected.get());
  }
  for (const Tensor& entry : tensors_) Py_VISIT(entry.tensor.get());
  for (const PyRef& tensor : without_gradient_) Py_VISIT(tensor.get());
  for (const PyRef& tensor : with_gradient_) Py_VISIT(tensor.get());
  for (const Tensor& entry : gradients_) Py_VISIT(entry.tensor.get());
  for (const Unwritten& entry : unwritten_) Py_VISIT(entry.tensor.get());
  return 0;
}

}  // namespace hostjit
