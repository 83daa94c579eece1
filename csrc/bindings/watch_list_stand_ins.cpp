// SPDX-License-Identifier: Apache-2.0
// Other objects in the places of those that a WatchList watches; see StandIns.
#include <algorithm>
#include <utility>

#include "bindings/object_state.h"
#include "bindings/watch_list.h"

namespace hostjit {
namespace {

// The place in another object of the same type.
PyObject* const* in_other(PyObject* const* address, PyObject* object, PyObject* other) {
  const auto offset = reinterpret_cast<const char*>(address) - reinterpret_cast<char*>(object);
  return reinterpret_cast<PyObject* const*>(reinterpret_cast<char*>(other) + offset);
}

}  // namespace

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

bool WatchList::knows_object(PyObject* object) const {
  return std::ranges::any_of(object_types_,
                             [&](const Pair& entry) { return entry.object.get() == object; });
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
  return fields_fit(before, now, fits) ? Fit::kYes : Fit::kNo;
}

bool WatchList::fields_fit(PyObject* before, PyObject* now, const Fits& fits) const {
  return std::ranges::all_of(fields_, [&](const Field& entry) {
    return entry.object.get() != before ||
           may_hold(entry.expected.get(), *in_other(entry.address, before, now), fits);
  });
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
    PyObject* const owner = entry.owner ? stand_in(entry.owner.get()) : nullptr;
    if (owner != entry.owner.get()) {
      if (PyObject* const* place = dict_place_of(entry.owner.get())) {
        watch_instead(place, dict_place_of(owner), now);
      }
      put(entry.owner);
    }
    if (now == entry.dict.get()) continue;
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

void WatchList::watch_instead(PyObject* const* address, PyObject* const* now, PyObject* expected) {
  const auto* word = reinterpret_cast<const uint64_t*>(address);
  for (Word& entry : words_) {
    if (entry.address != word) continue;
    entry = {reinterpret_cast<const uint64_t*>(now), reinterpret_cast<uint64_t>(expected)};
  }
}

}  // namespace hostjit
