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

// The place in another object of the same type.
PyObject* const* in_other(PyObject* const* address, PyObject* object, PyObject* other) {
  const auto offset = reinterpret_cast<const char*>(address) - reinterpret_cast<char*>(object);
  return reinterpret_cast<PyObject* const*>(reinterpret_cast<char*>(other) + offset);
}

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

std::vector<PyObject*> WatchList::Dict::values_in(PyObject* other) const {
  std::vector<PyObject*> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); ++i) {
    PyObject* value = PyDict_GetItemWithError(other, PyTuple_GET_ITEM(keys.get(), i));
    if (value == nullptr) PyErr_Clear();
    found.push_back(value != nullptr ? value : missing.get());
  }
  return found;
}

std::vector<PyObject*> WatchList::List::items_in(PyObject* other) const {
  std::vector<PyObject*> found = items_of(other);
  const size_t known =
      std::min(found.size(), static_cast<size_t>(PyTuple_GET_SIZE(expected.get())));
  for (size_t i = 0; i < known; ++i) {
    if (PyTuple_GET_ITEM(expected.get(), static_cast<Py_ssize_t>(i)) == any.get()) {
      found[i] = any.get();
    }
  }
  return found;
}

WatchList::Fit WatchList::fit(PyObject* expected, const std::vector<PyObject*>& found,
                              const Fits& fits) {
  if (std::cmp_not_equal(found.size(), PyTuple_GET_SIZE(expected))) return Fit::kOtherLength;
  for (size_t i = 0; i < found.size(); ++i) {
    PyObject* before = PyTuple_GET_ITEM(expected, static_cast<Py_ssize_t>(i));
    if (found[i] != before && !fits(before, found[i])) return Fit::kNo;
  }
  return Fit::kYes;
}

bool WatchList::may_hold(PyObject* expected, PyObject* found, const Fits& fits) {
  if (expected == found) return true;
  return expected != nullptr && found != nullptr && fits(expected, found);
}

WatchList::Fit WatchList::all_fit(const std::function<bool(PyObject* container)>& is_asked,
                                  const Fits& fits) const {
  for (const Pair& entry : cells_) {
    PyObject* cell = entry.object.get();
    PyObject* expected = entry.expected.get();
    PyObject* found = PyCell_GET(cell);
    if (found == expected || !is_asked(cell)) continue;
    if (!may_hold(expected, found, fits)) return Fit::kNo;
  }
  for (const Dict& entry : dicts_) {
    PyObject* dict = entry.dict.get();
    const uint64_t* current = version_of(dict);
    if (!entry.keys || (current != nullptr && *current == entry.version)) continue;
    if (!is_asked(entry.owner ? entry.owner.get() : dict)) continue;
    const Fit found = fit(entry.expected.get(), entry.values_in(dict), fits);
    if (found != Fit::kYes) return found;
  }
  for (const List& entry : lists_) {
    if (!is_asked(entry.object.get())) continue;
    const Fit found = fit(entry.expected.get(), entry.items_in(entry.object.get()), fits);
    if (found != Fit::kYes) return found;
  }
  for (const Field& entry : fields_) {
    if (*entry.address == entry.expected.get() || !is_asked(entry.object.get())) continue;
    if (!may_hold(entry.expected.get(), *entry.address, fits)) return Fit::kNo;
  }
  return Fit::kYes;
}

PyObject* WatchList::dict_of_owner(PyObject* owner) const {
  const auto is_of_owner = [&](const Dict& entry) { return entry.owner.get() == owner; };
  const auto found = std::ranges::find_if(dicts_, is_of_owner);
  return found != dicts_.end() ? found->dict.get() : nullptr;
}

WatchList::Fit WatchList::contents_fit(PyObject* before, PyObject* now, const Fits& fits) const {
  for (const Dict& entry : dicts_) {
    if (entry.dict.get() != before) continue;
    // A dict that is watched whole has a version of its own.
    if (!entry.keys || !entry.place || version_of(now) == nullptr) return Fit::kNo;
    const Fit found = fit(entry.expected.get(), entry.values_in(now), fits);
    if (found != Fit::kYes) return found;
  }
  for (const List& entry : lists_) {
    if (entry.object.get() != before) continue;
    const Fit found = fit(entry.expected.get(), entry.items_in(now), fits);
    if (found != Fit::kYes) return found;
  }
  for (const Field& entry : fields_) {
    if (entry.object.get() != before) continue;
    if (!may_hold(entry.expected.get(), *in_other(entry.address, before, now), fits)) {
      return Fit::kNo;
    }
  }
  return Fit::kYes;
}

void WatchList::put_in_place(const StandIn& stand_in) {
  const auto put = [&](Watched& object) {
    PyObject* const now = stand_in(object.get());
    if (now != object.get()) object = watched(now);
  };
  // First what is inside of the objects that they were: these may go with their last reference.
  for (Field& entry : fields_) {
    PyObject* const before = entry.object.get();
    PyObject* const* const address = in_other(entry.address, before, stand_in(before));
    watch_instead(entry.address, address, *address);
    entry.address = address;
    entry.expected = PyRef::share(*address);
    put(entry.object);
  }
  for (Pair& entry : object_types_) {
    PyObject* const now = stand_in(entry.object.get());
    watch_instead(reinterpret_cast<PyObject**>(&entry.object.get()->ob_type),
                  reinterpret_cast<PyObject**>(&now->ob_type), entry.expected.get());
    put(entry.object);
  }
  for (Dict& entry : dicts_) {
    PyObject* const now = stand_in(entry.dict.get());
    if (now == entry.dict.get()) continue;
    if (entry.owner) {
      PyObject* const owner = stand_in(entry.owner.get());
      if (PyObject* const* place = dict_place_of(entry.owner.get())) {
        watch_instead(place, dict_place_of(owner), now);
      }
      put(entry.owner);
    }
    versions_[*entry.place] = version_of(now);
    put(entry.dict);
    entry.version = 0;  // which no dict has
  }
  for (List& entry : lists_) put(entry.object);
  for (Pair& entry : dict_keys_) put(entry.object);
  tensors_.put_in_place(stand_in);
}

bool WatchList::holds_from_now_on() {
  const auto expect = [](PyRef& expected, const std::vector<PyObject*>& found) {
    PyRef renewed = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(found.size())));
    if (!renewed) throw pybind11::error_already_set();
    for (size_t i = 0; i < found.size(); ++i) {
      PyTuple_SET_ITEM(renewed.get(), static_cast<Py_ssize_t>(i), Py_NewRef(found[i]));
    }
    expected = std::move(renewed);
  };
  for (Pair& entry : cells_) {
    auto* cell = reinterpret_cast<PyCellObject*>(entry.object.get());
    entry.expected = PyRef::share(cell->ob_ref);
    watch_instead(&cell->ob_ref, &cell->ob_ref, cell->ob_ref);
  }
  for (Dict& entry : dicts_) {
    const uint64_t* current = version_of(entry.dict.get());
    const bool is_same = current != nullptr && *current == entry.version;
    if (entry.keys && !is_same) expect(entry.expected, entry.values_in(entry.dict.get()));
  }
  for (List& entry : lists_) {
    if (!entry.holds()) expect(entry.expected, entry.items_in(entry.object.get()));
  }
  return holds_on_a_closer_look();
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

void WatchList::watch_instead(PyObject* const* address, PyObject* const* now, PyObject* expected) {
  const auto* word = reinterpret_cast<const uint64_t*>(address);
  for (Word& entry : words_) {
    if (entry.address != word) continue;
    entry = {reinterpret_cast<const uint64_t*>(now), reinterpret_cast<uint64_t>(expected)};
  }
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

std::vector<PyObject*> WatchList::objects() const {
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
  for (const Pair& entry : object_types_) found.push_back(entry.object.get());
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
