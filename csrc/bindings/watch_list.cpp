// SPDX-License-Identifier: Apache-2.0
#include "bindings/watch_list.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <utility>

#include "bindings/object_state.h"
#include "support/check.h"

namespace hostjit {
namespace {

PyObject* null_for_none(PyObject* object) { return object == Py_None ? nullptr : object; }

// Itself, if it is one, and those in a tuple.
void add_containers(PyObject* object, std::vector<PyObject*>& found) {
  if (object == nullptr) return;
  if (PyList_Check(object) || PyDict_Check(object) || is_deque(object)) found.push_back(object);
  if (!PyTuple_CheckExact(object)) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
    add_containers(PyTuple_GET_ITEM(object, i), found);
  }
}

}  // namespace

bool WatchList::Dict::holds() {
  if (moves != nullptr && *moves != num_moves) return false;
  if (owner && !is_dict_of(owner.get(), dict.get())) return false;
  const uint64_t* current = version_of(dict.get());
  if (current != nullptr && *current == version) return true;
  if (size >= 0 && PyDict_Size(dict.get()) != size) return false;
  if (!keys || !has_items(dict.get(), keys.get(), expected.get(), missing.get())) return false;
  if (current != nullptr) version = *current;
  return true;
}

bool WatchList::List::holds() const {
  PyObject* items = expected.get();
  const auto is_expected = [&](Py_ssize_t i, PyObject* item) {
    return PyTuple_GET_ITEM(items, i) == item || PyTuple_GET_ITEM(items, i) == any.get();
  };
  PyObject* list = object.get();
  if (PyList_Check(list)) {
    if (PyList_GET_SIZE(list) != PyTuple_GET_SIZE(items)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
      if (!is_expected(i, PyList_GET_ITEM(list, i))) return false;
    }
    return true;
  }
  const std::vector<PyObject*> found = items_of(list);
  if (std::cmp_not_equal(found.size(), PyTuple_GET_SIZE(items))) return false;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!is_expected(static_cast<Py_ssize_t>(i), found[i])) return false;
  }
  return true;
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
    entry.place = versions_.size();
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
  Dict entry{watched(dict), watched(owner), {}, {}, {}, /*version=*/0};
  if (PyODict_Check(dict) && PyDict_GET_SIZE(dict) > 1) {  // fewer items cannot change their order
    entry.moves = moves_of(dict);
    if (entry.moves == nullptr) add_dict_keys(dict, keys_in_order(dict).get());
    if (entry.moves != nullptr) words_.push_back({entry.moves, entry.num_moves = *entry.moves});
  }
  add_dict_entry(std::move(entry), /*unchanged=*/true);
}

void WatchList::add_dict_items(PyObject* dict, PyObject* owner, PyObject* keys, PyObject* expected,
                               PyObject* missing) {
  HOSTJIT_ICHECK(PyDict_Check(dict) && PyTuple_Check(keys) && PyTuple_Check(expected) &&
                     PyTuple_GET_SIZE(keys) == PyTuple_GET_SIZE(expected),
                 "a dict watch needs a dict and tuples of one length");
  add_dict_entry({watched(dict), watched(owner), PyRef::share(keys), PyRef::share(expected),
                  PyRef::share(missing), /*version=*/0},
                 /*unchanged=*/false);
}

void WatchList::add_cell(PyObject* cell, PyObject* expected) {
  HOSTJIT_ICHECK(PyCell_Check(cell), "a watched cell is a ", Py_TYPE(cell)->tp_name);
  watch_pointer(&reinterpret_cast<PyCellObject*>(cell)->ob_ref, expected);
  cells_.push_back({watched(cell), PyRef::share(expected)});
}

void WatchList::add_dict_keys(PyObject* dict, PyObject* keys) {
  HOSTJIT_ICHECK(PyDict_Check(dict) && PyTuple_Check(keys), "a watch of keys needs a dict");
  has_others_ = true;
  dict_keys_.push_back({watched(dict), PyRef::share(keys)});
}

void WatchList::add_list(PyObject* list, PyObject* items, PyObject* any) {
  HOSTJIT_ICHECK((PyList_Check(list) || is_deque(list)) && PyTuple_Check(items),
                 "a list watch needs a list or a deque");
  has_others_ = true;
  lists_.push_back({watched(list), PyRef::share(items), PyRef::share(any)});
}

void WatchList::add_set(PyObject* set, PyObject* items) {
  HOSTJIT_ICHECK(PyAnySet_Check(set) && PyTuple_Check(items), "a set watch needs a set");
  has_others_ = true;
  sets_.push_back({watched(set), PyRef::share(items)});
}

void WatchList::add_type(PyObject* object) {
  HOSTJIT_ICHECK(PyType_Check(object), "a watched type is a ", Py_TYPE(object)->tp_name);
  auto* type = reinterpret_cast<PyTypeObject*>(object);
  half_words_.push_back({&type->tp_version_tag, version_of_type(type)});
  types_.push_back(PyRef::share(object));
}

void WatchList::add_type_but(PyObject* object, PyObject* open) {
  HOSTJIT_ICHECK(PyType_Check(object) && PyDict_Check(open), "a watched type is a ",
                 Py_TYPE(object)->tp_name);
  const auto* type = reinterpret_cast<PyTypeObject*>(object);
  PyObject* bases = type->tp_mro;
  watch_pointer(&type->tp_mro, bases);
  bases_.push_back({watched(object), PyRef::share(bases)});
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
  add_dict_entry({watched(dict), {}, names, values, names, /*version=*/0, PyDict_Size(dict)},
                 /*unchanged=*/true);
}

void WatchList::add_object_type(PyObject* object, PyObject* type) {
  watch_pointer(reinterpret_cast<PyObject**>(&object->ob_type), type);
  object_types_.push_back({watched(object), PyRef::share(type)});
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
    fields_.push_back({watched(object), address, PyRef::share(*address)});
  }
}

void WatchList::add_slots(PyObject* object, PyObject* members) {
  HOSTJIT_ICHECK(PyTuple_Check(members), "watched slots need a tuple of members");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members); ++i) {
    PyObject* const* address = slot_of(object, PyTuple_GET_ITEM(members, i));
    if (address == nullptr) {
      words_.push_back(kNever);  // has to be asked for at every call
      continue;
    }
    watch_pointer(address, *address);
    fields_.push_back({watched(object), address, PyRef::share(*address)});
  }
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
    fields_.push_back({watched(tensor), address, PyRef::share(*address)});
  }
}

void WatchList::add_plain_backward() {
  has_others_ = true;
  plain_backward_ = true;
}

bool WatchList::others_hold() const {
  const auto set_holds = [](const Pair& entry) {
    return set_is(entry.object.get(), entry.expected.get());
  };
  const auto keys_hold = [](const Pair& entry) {
    return dict_has_keys(entry.object.get(), entry.expected.get());
  };
  return tensors_.hold() &&
         std::ranges::all_of(lists_, [](const List& entry) { return entry.holds(); }) &&
         std::ranges::all_of(sets_, set_holds) && std::ranges::all_of(dict_keys_, keys_hold) &&
         (!abc_token_ || abc_token_is(abc_token_.get())) &&
         (!plain_backward_ || (!torch::autograd::AnomalyMode::is_enabled() &&
                               !at::SavedTensorDefaultHooks::get_hooks()));
}

bool WatchList::holds_on_a_closer_look() {
  const auto half_word_holds = [](const HalfWord& word) { return *word.address == word.expected; };
  const auto type_holds = [](const Pair& entry) {
    return reinterpret_cast<PyObject*>(Py_TYPE(entry.object.get())) == entry.expected.get();
  };
  const auto bases_hold = [](const Pair& entry) {
    return reinterpret_cast<PyTypeObject*>(entry.object.get())->tp_mro == entry.expected.get();
  };
  const auto cell_holds = [](const Pair& entry) {
    return PyCell_GET(entry.object.get()) == entry.expected.get();
  };
  const auto function_holds = [](const Function& entry) {
    const auto* function = reinterpret_cast<PyFunctionObject*>(entry.function.get());
    return function->func_code == entry.code.get() &&
           null_for_none(function->func_defaults) == entry.defaults.get() &&
           null_for_none(function->func_kwdefaults) == entry.kwdefaults.get();
  };
  const auto field_holds = [](const Field& entry) {
    return *entry.address == entry.expected.get();
  };
  return dicts_hold() && std::ranges::all_of(half_words_, half_word_holds) &&
         std::ranges::all_of(object_types_, type_holds) &&
         std::ranges::all_of(bases_, bases_hold) && std::ranges::all_of(cells_, cell_holds) &&
         std::ranges::all_of(functions_, function_holds) &&
         std::ranges::all_of(fields_, field_holds) && others_hold();
}

std::vector<PyObject*> WatchList::containers() const {
  std::vector<PyObject*> found;
  const auto add = [&](PyObject* object) { add_containers(object, found); };
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
    Py_VISIT(entry.dict.held());
    Py_VISIT(entry.owner.held());
    Py_VISIT(entry.keys.get());
    Py_VISIT(entry.expected.get());
    Py_VISIT(entry.missing.get());
  }
  for (const auto* pairs : {&cells_, &sets_, &dict_keys_, &object_types_, &bases_}) {
    for (const Pair& entry : *pairs) {
      Py_VISIT(entry.object.held());
      Py_VISIT(entry.expected.get());
    }
  }
  for (const List& entry : lists_) {
    Py_VISIT(entry.object.held());
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
    Py_VISIT(entry.object.held());
    Py_VISIT(entry.expected.get());
  }
  return tensors_.traverse(visit, arg);
}

}  // namespace hostjit
