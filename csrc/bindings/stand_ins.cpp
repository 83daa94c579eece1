// SPDX-License-Identifier: Apache-2.0
#include "bindings/stand_ins.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "bindings/object_state.h"

namespace hostjit {
namespace {

// Values that no code tells apart, but by `is`.
bool is_same_constant(PyObject* a, PyObject* b) {
  if (PyFloat_CheckExact(a)) {
    const double x = PyFloat_AS_DOUBLE(a);
    const double y = PyFloat_AS_DOUBLE(b);
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  }
  return (PyLong_CheckExact(a) || PyUnicode_CheckExact(a) || PyBytes_CheckExact(a)) &&
         PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

bool is_same_limit(PyObject* a, PyObject* b) {
  return PyObject_RichCompareBool(limit_of(a).get(), limit_of(b).get(), Py_EQ) == 1;
}

}  // namespace

StandIns::StandIns(PyObject* replaceable) {
  if (replaceable == nullptr) return;
  const auto parts = pybind11::reinterpret_borrow<pybind11::sequence>(replaceable);
  for (auto [part, objects] : {std::pair{0, &replaceable_}, std::pair{1, &unread_}}) {
    for (const pybind11::handle object : parts[static_cast<size_t>(part)]) {
      objects->push_back(object.ptr());
    }
  }
}

bool StandIns::is_replaceable(PyObject* object) const {
  return std::ranges::find(replaceable_, object) != replaceable_.end();
}

PyObject* StandIns::planned(PyObject* before) const {
  const auto found = std::ranges::find(planned_, before, &Pair::first);
  return found != planned_.end() ? found->second : nullptr;
}

bool StandIns::take(const Places& places) {
  refused_ = false;
  if (replaceable_.empty()) return false;
  planned_.clear();
  // What was in a container that is another one now does not matter.
  for (const bool in_replaceable : {false, true}) {
    const auto fit = places.watches.all_fit(
        [&](PyObject* container) {
          return is_replaceable(container) == in_replaceable && planned(container) == nullptr;
        },
        [&](PyObject* before, PyObject* now) { return fits(places, before, now); });
    if (fit == WatchList::Fit::kOtherLength && in_replaceable) refused_ = true;
    if (fit != WatchList::Fit::kYes) return false;
  }
  if (!are_distinct(places)) return false;
  put_in_place(places);
  return places.watches.holds_from_now_on();
}

bool StandIns::fits(const Places& places, PyObject* before, PyObject* now) {
  if (before == now) return true;
  const bool may_be_other = is_replaceable(before);
  if (Py_TYPE(before) != Py_TYPE(now)) {
    refused_ = refused_ || may_be_other;
    return false;
  }
  for (const auto& [known, in_place] : planned_) {
    if (known == before || in_place == now) return known == before && in_place == now;
  }
  if (may_be_other) {
    planned_.emplace_back(before, now);
    if (!PyTuple_Check(before)) return contents_fit(places, before, now);
    refused_ = refused_ || PyTuple_GET_SIZE(before) != PyTuple_GET_SIZE(now);
    if (std::ranges::find(unread_, before) != unread_.end()) return !refused_;
  } else if (!PyTuple_CheckExact(before)) {
    return is_same_constant(before, now);
  }
  const Py_ssize_t size = PyTuple_GET_SIZE(before);
  if (PyTuple_GET_SIZE(now) != size) return false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (may_be_other && places.numbers.has_item(before, i)) continue;
    if (!fits(places, PyTuple_GET_ITEM(before, i), PyTuple_GET_ITEM(now, i))) return false;
  }
  return true;
}

bool StandIns::contents_fit(const Places& places, PyObject* before, PyObject* now) {
  if (THPVariable_Check(before)) return tensor_fits(places, before, now);
  if (is_deque(now) && !is_same_limit(before, now)) return false;
  if (PyObject* const dict = places.watches.dict_of_owner(before)) {
    const PyRef other = dict_of(now);
    if (!other) return false;
    planned_.emplace_back(dict, other.get());  // which its owner keeps
    if (!contents_fit(places, dict, other.get())) return false;
  }
  const auto fit = places.watches.contents_fit(
      before, now, [&](PyObject* item, PyObject* found) { return fits(places, item, found); });
  if (fit == WatchList::Fit::kOtherLength) refused_ = true;
  return fit == WatchList::Fit::kYes;
}

bool StandIns::tensor_fits(const Places& places, PyObject* before, PyObject* now) {
  const auto binding_fits = [&](const InputBinding& binding) {
    return binding.fits_in_place(before, now);
  };
  if (!std::ranges::all_of(places.bindings, binding_fits)) {
    refused_ = true;
    return false;
  }
  return std::ranges::count(places.identities.outside(), before) == 1 &&
         places.watches.tensors().fits_in_place(before, now) &&
         places.watches.fields_fit(before, now, [](PyObject*, PyObject*) { return false; });
}

bool StandIns::are_distinct(const Places& places) const {
  const auto& outside = places.identities.outside();
  return std::ranges::all_of(planned_, [&](const Pair& pair) {
    PyObject* const now = pair.second;
    if (PyTuple_Check(now) || planned(now) != nullptr) return true;
    return std::ranges::find(outside, now) == outside.end() && !is_replaceable(now) &&
           !std::ranges::binary_search(places.known, now) && !places.watches.knows_object(now);
  });
}

void StandIns::put_in_place(const Places& places) {
  const StandIn stand_in = [this](PyObject* object) {
    PyObject* const now = planned(object);
    return now != nullptr ? now : object;
  };
  for (auto* objects : {&replaceable_, &unread_}) {
    for (PyObject*& object : *objects) object = stand_in(object);
  }
  for (PyObject*& object : places.known) object = stand_in(object);
  std::ranges::sort(places.known);
  for (InputBinding& binding : places.bindings) binding.put_in_place(stand_in);
  places.numbers.put_in_place(stand_in);
  places.stores.put_in_place(stand_in);
  places.output.put_in_place(stand_in);
  places.identities.put_in_place(stand_in);
  places.watches.put_in_place(stand_in);
}

}  // namespace hostjit
