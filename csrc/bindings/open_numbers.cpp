// SPDX-License-Identifier: Apache-2.0
#include "bindings/open_numbers.h"

#include <pybind11/pybind11.h>

#include <string>

#include "support/check.h"

namespace py = pybind11;

namespace hostjit {
namespace {

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
  for (const py::handle description : py::reinterpret_borrow<py::sequence>(descriptions)) {
    const auto parts = py::reinterpret_borrow<py::tuple>(description);
    const size_t slot = numbers_.size();
    numbers_.push_back(number_from_python(parts));
    if (parts.size() == 4) {
      arguments.open_number(parts[3].cast<size_t>(), numbers_.back(), slot);
      continue;
    }
    HOSTJIT_CHECK(parts.size() == 5 && slot < Leaves::kMostNumbers,
                  "specialization: an open number has no place");
    const py::object holder = parts[3];
    if (PyUnicode_Check(holder.ptr())) {
      HOSTJIT_CHECK(holder.cast<std::string>() == "value", "specialization: an open number is a ",
                    holder.cast<std::string>(), ", expected value");
      computed_.push_back({parts[4].cast<size_t>(), slot});
      continue;
    }
    HOSTJIT_CHECK(
        PyDict_Check(holder.ptr()) || PyCell_Check(holder.ptr()) || PyList_Check(holder.ptr()),
        "specialization: an open number is not in the arguments, a dict, a list or a cell");
    items_.push_back({PyRef::share(holder.ptr()), PyRef::share(py::object(parts[4]).ptr()), slot});
  }
}

PyObject* OpenNumbers::Item::find() const {
  if (PyCell_Check(holder.get())) return PyCell_GET(holder.get());
  if (PyList_Check(holder.get())) {
    const Py_ssize_t index = PyLong_AsSsize_t(key.get());
    const bool is_there = index >= 0 && index < PyList_GET_SIZE(holder.get());
    return is_there ? PyList_GET_ITEM(holder.get(), index) : nullptr;
  }
  PyObject* found = PyDict_GetItemWithError(holder.get(), key.get());
  if (found == nullptr) PyErr_Clear();
  return found;
}

bool OpenNumbers::read_items(Leaves& leaves) const {
  for (const Item& item : items_) {
    if (!read(item.find(), item.slot, leaves)) return false;
  }
  return true;
}

bool OpenNumbers::read_computed(Leaves& leaves) const {
  for (const Computed& computed : computed_) {
    if (!read(leaves.values[computed.value].get(), computed.slot, leaves)) return false;
  }
  return true;
}

bool OpenNumbers::read(PyObject* found, size_t slot, Leaves& leaves) const {
  const OpenNumber& number = numbers_[slot];
  return found != nullptr && number.is_kind_of(found) && number.read(found, leaves.numbers[slot]);
}

int OpenNumbers::traverse(visitproc visit, void* arg) const {
  for (const Item& item : items_) {
    Py_VISIT(item.holder.get());
    Py_VISIT(item.key.get());
  }
  return 0;
}

}  // namespace hostjit
