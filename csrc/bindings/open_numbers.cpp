// SPDX-License-Identifier: Apache-2.0
#include "bindings/open_numbers.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bindings/object_state.h"
#include "support/check.h"

namespace py = pybind11;

namespace hostjit {
namespace {

bool is_slot(PyObject* key) { return Py_TYPE(key) == &PyMemberDescr_Type; }

OpenNumber number_from_python(const py::tuple& parts) {
  OpenNumber number;
  number.is_float = parts[0].ptr() == reinterpret_cast<PyObject*>(&PyFloat_Type);
  HOSTJIT_CHECK(number.is_float || parts[0].ptr() == reinterpret_cast<PyObject*>(&PyLong_Type),
                "specialization: an open number is neither an int nor a float");
  const auto read = [&parts](size_t i, auto& bound) {
    if (!parts[i].is_none()) bound = parts[i].cast<std::remove_reference_t<decltype(bound)>>();
  };
  if (number.is_float) {
    read(1, number.least_float);
    read(2, number.most_float);
  } else {
    read(1, number.least);
    read(2, number.most);
  }
  return number;
}

}  // namespace

OpenNumbers::OpenNumbers(PyObject* descriptions, ArgumentSpec& arguments) {
  const auto all = py::reinterpret_borrow<py::sequence>(descriptions);
  const auto each = [&all](const std::string& kind, const auto& add) {
    for (const py::handle description : all) {
      const auto parts = py::reinterpret_borrow<py::tuple>(description);
      const bool is_number = !PyUnicode_Check(parts[0].ptr());
      if (kind == (is_number ? "number" : parts[0].cast<std::string>())) add(parts);
    }
  };
  each("structure", [this](const py::tuple& parts) { add_structure(parts); });
  each("number", [&](const py::tuple& parts) { add_number(parts, arguments); });
  each("same", [this](const py::tuple& parts) { add_repeated(parts); });
}

OpenNumbers::Place OpenNumbers::place_from_python(const py::object& holder, const py::object& key) {
  HOSTJIT_CHECK(is_slot(key.ptr()) || PyDict_Check(holder.ptr()) || PyCell_Check(holder.ptr()) ||
                    PyList_Check(holder.ptr()) || PyTuple_Check(holder.ptr()) ||
                    PyType_Check(holder.ptr()),
                "specialization: an open number is in none of the arguments, a dict, a list, a "
                "tuple, a cell, a class and a slot");
  HOSTJIT_CHECK(!is_slot(key.ptr()) || slot_of(holder.ptr(), key.ptr()) != nullptr,
                "specialization: an open number is in a slot that holds no objects");
  return {PyRef::share(holder.ptr()), PyRef::share(key.ptr())};
}

void OpenNumbers::add_structure(const py::tuple& parts) {
  HOSTJIT_CHECK(parts.size() == 4 && PyDict_Check(py::object(parts[3]).ptr()),
                "specialization: a structure has no place");
  Place place = place_from_python(parts[1], parts[2]);
  PyObject* example = place.find();
  HOSTJIT_CHECK(example != nullptr, "specialization: nothing is where a structure should be");
  std::vector<PyObject*> leaves;
  ArgumentNode expected(example, leaves, py::object(parts[3]).ptr());
  HOSTJIT_CHECK(leaves.empty(), "specialization: there is a tensor in a structure");
  structures_.push_back({std::move(place), std::move(expected)});
}

void OpenNumbers::add_number(const py::tuple& parts, ArgumentSpec& arguments) {
  const size_t slot = numbers_.size();
  numbers_.push_back(number_from_python(parts));
  if (parts.size() == 4) {
    arguments.open_number(parts[3].cast<size_t>(), numbers_.back(), slot);
    return;
  }
  HOSTJIT_CHECK(parts.size() == 5 && slot < Leaves::kMostNumbers,
                "specialization: an open number has no place");
  const py::object holder = parts[3];
  if (!PyUnicode_Check(holder.ptr())) {
    items_.push_back({place_from_python(holder, parts[4]), slot});
    return;
  }
  const auto kind = holder.cast<std::string>();
  if (kind == "value") {
    computed_.push_back({parts[4].cast<size_t>(), slot});
    return;
  }
  HOSTJIT_CHECK(kind == "structure", "specialization: an open number is a ", kind,
                ", expected value or structure");
  auto [index, leaf] = parts[4].cast<std::pair<size_t, size_t>>();
  const bool found = index < structures_.size() &&
                     structures_[index].expected.open_number(leaf, numbers_.back(), slot);
  HOSTJIT_CHECK(found, "specialization: structure ", index, " has not that many numbers");
}

void OpenNumbers::add_repeated(const py::tuple& parts) {
  const auto slot = parts[3].cast<size_t>();
  const bool is_known = std::ranges::any_of(items_, [&](const Item& i) { return i.slot == slot; });
  HOSTJIT_CHECK(is_known, "specialization: open number ", slot, " is found in no place");
  items_.push_back({place_from_python(parts[1], parts[2]), slot, true});
}

PyObject* OpenNumbers::Place::find() const {
  if (is_slot(key.get())) return *slot_of(holder.get(), key.get());
  if (PyCell_Check(holder.get())) return PyCell_GET(holder.get());
  if (PyList_Check(holder.get()) || PyTuple_Check(holder.get())) {
    const Py_ssize_t index = PyLong_AsSsize_t(key.get());
    const bool is_there = index >= 0 && index < PySequence_Fast_GET_SIZE(holder.get());
    return is_there ? PySequence_Fast_GET_ITEM(holder.get(), index) : nullptr;
  }
  PyObject* dict = PyType_Check(holder.get())
                       ? reinterpret_cast<PyTypeObject*>(holder.get())->tp_dict
                       : holder.get();
  PyObject* found = PyDict_GetItemWithError(dict, key.get());
  if (found == nullptr) PyErr_Clear();
  return found;
}

bool OpenNumbers::read_items(Leaves& leaves) const {
  for (const Item& item : items_) {
    int64_t bits = 0;
    int64_t& number = leaves.numbers[item.slot];
    if (!read(item.place.find(), item.slot, item.is_repeated ? bits : number)) return false;
    if (item.is_repeated && bits != number) return false;
  }
  const size_t num_objects = leaves.objects.size();
  for (const Structure& structure : structures_) {
    PyObject* found = structure.place.find();
    if (found == nullptr || !structure.expected.match(found, leaves)) return false;
  }
  return leaves.are_distinct_from(num_objects);
}

bool OpenNumbers::read_computed(Leaves& leaves) const {
  for (const Computed& computed : computed_) {
    PyObject* value = leaves.values[computed.value].get();
    if (!read(value, computed.slot, leaves.numbers[computed.slot])) return false;
  }
  return true;
}

bool OpenNumbers::read(PyObject* found, size_t slot, int64_t& bits) const {
  const OpenNumber& number = numbers_[slot];
  return found != nullptr && number.is_kind_of(found) && number.read(found, bits);
}

bool OpenNumbers::has_item(PyObject* tuple, Py_ssize_t index) const {
  return std::ranges::any_of(items_, [&](const Item& item) {
    return item.place.holder.get() == tuple && PyLong_AsSsize_t(item.place.key.get()) == index;
  });
}

void OpenNumbers::put_in_place(const StandIn& stand_in) {
  const auto put = [&](Place& place) { place.holder = PyRef::share(stand_in(place.holder.get())); };
  for (Item& item : items_) put(item.place);
  for (Structure& structure : structures_) put(structure.place);
}

int OpenNumbers::traverse(visitproc visit, void* arg) const {
  for (const Item& item : items_) {
    Py_VISIT(item.place.holder.get());
    Py_VISIT(item.place.key.get());
  }
  for (const Structure& structure : structures_) {
    Py_VISIT(structure.place.holder.get());
    Py_VISIT(structure.place.key.get());
    if (const int status = structure.expected.traverse(visit, arg)) return status;
  }
  return 0;
}

}  // namespace hostjit
