// SPDX-License-Identifier: Apache-2.0
#include "bindings/number_results.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string>
#include <utility>

#include "support/check.h"

namespace py = pybind11;

namespace hostjit {

NumberResults::NumberResults(PyObject* description, size_t num_leaves) {
  const auto parts = py::reinterpret_borrow<py::tuple>(description);
  if (parts.empty()) return;
  for (const py::handle source : py::reinterpret_borrow<py::sequence>(py::object(parts[0]))) {
    const auto pair = py::reinterpret_borrow<py::tuple>(source);
    const auto kind = pair[0].cast<std::string>();
    if (kind == "open") {
      const auto slot = pair[1].cast<size_t>();
      HOSTJIT_CHECK(slot < Leaves::kMostNumbers, "number results: open number ", slot,
                    ", expected less than ", Leaves::kMostNumbers);
      sources_.push_back({.kind = Kind::kOpen, .object = PyRef(), .index = slot});
    } else if (kind == "size") {
      const auto [leaf, dim] = pair[1].cast<std::pair<size_t, size_t>>();
      HOSTJIT_CHECK(leaf < num_leaves, "number results: a size of tensor leaf ", leaf,
                    ", expected less than ", num_leaves);
      sources_.push_back({.kind = Kind::kSize, .object = PyRef(), .index = leaf, .dim = dim});
    } else if (kind == "leaf") {
      const auto leaf = pair[1].cast<size_t>();
      HOSTJIT_CHECK(leaf < num_leaves, "number results: tensor leaf ", leaf,
                    ", expected less than ", num_leaves);
      sources_.push_back({.kind = Kind::kLeaf, .object = PyRef(), .index = leaf});
    } else {
      HOSTJIT_CHECK(kind == "object", "number results: unknown source '", kind,
                    "', expected open, size, leaf or object");
      sources_.push_back(
          {.kind = Kind::kObject, .object = PyRef::share(py::object(pair[1]).ptr()), .index = 0});
    }
  }
  for (const py::handle step : py::reinterpret_borrow<py::sequence>(py::object(parts[1]))) {
    const auto pair = py::reinterpret_borrow<py::tuple>(step);
    auto operands = pair[1].cast<std::vector<size_t>>();
    for (const size_t operand : operands) {
      HOSTJIT_CHECK(operand < size(), "number results: operand ", operand, " of step ",
                    steps_.size(), " is none of the ", size(), " values before it");
    }
    steps_.push_back({PyRef::share(py::object(pair[0]).ptr()), std::move(operands)});
  }
}

PyObject* NumberResults::value_of(const Source& source, const OpenNumbers& numbers,
                                  const Leaves& leaves) {
  switch (source.kind) {
    case Kind::kObject: return Py_NewRef(source.object.get());
    case Kind::kOpen: return numbers.to_python(source.index, leaves);
    case Kind::kLeaf: return Py_NewRef(leaves[source.index]);
    case Kind::kSize: break;
  }
  const at::IntArrayRef sizes = THPVariable_Unpack(leaves[source.index]).sizes();
  if (source.dim < sizes.size()) return PyLong_FromLongLong(sizes[source.dim]);
  PyErr_SetString(PyExc_IndexError, "a tensor has too few dims");  // so no program answers
  return nullptr;
}

bool NumberResults::compute(const OpenNumbers& numbers, Leaves& leaves) const {
  NumberValues& values = leaves.values;
  if (!values.empty()) return true;
  for (const Source& source : sources_) {
    values.push_back(PyRef::steal(value_of(source, numbers, leaves)));
    if (!values.back()) return false;
  }
  c10::SmallVector<PyObject*, 4> operands;
  for (const Step& step : steps_) {
    operands.clear();
    for (const size_t operand : step.operands) operands.push_back(values[operand].get());
    values.push_back(PyRef::steal(
        PyObject_Vectorcall(step.function.get(), operands.data(), operands.size(), nullptr)));
    if (!values.back()) return false;
  }
  return true;
}

int NumberResults::traverse(visitproc visit, void* arg) const {
  for (const Source& source : sources_) Py_VISIT(source.object.get());
  for (const Step& step : steps_) Py_VISIT(step.function.get());
  return 0;
}

NumberStores::NumberStores(PyObject* descriptions, size_t num_values) {
  for (const py::handle description : py::reinterpret_borrow<py::sequence>(descriptions)) {
    const auto parts = py::reinterpret_borrow<py::tuple>(description);
    const py::object holder = parts[0];
    const py::object key = parts[1];
    const auto value = parts[2].cast<size_t>();
    HOSTJIT_CHECK(
        PyDict_Check(holder.ptr()) || PyCell_Check(holder.ptr()) || PyList_Check(holder.ptr()),
        "specialization: a number is stored in a ", Py_TYPE(holder.ptr())->tp_name,
        ", expected a dict, a list or a cell");
    HOSTJIT_CHECK(value < num_values, "specialization: value ", value, " is stored, there are ",
                  num_values);
    stores_.push_back({PyRef::share(holder.ptr()), PyRef::share(key.ptr()), value});
  }
}

bool NumberStores::put(const NumberValues& values) const {
  for (const Store& store : stores_) {
    PyObject* holder = store.holder.get();
    PyObject* value = values[store.value].get();
    const int status = PyCell_Check(holder)   ? PyCell_Set(holder, value)
                       : PyList_Check(holder) ? PyObject_SetItem(holder, store.key.get(), value)
                                              : PyDict_SetItem(holder, store.key.get(), value);
    if (status < 0) return false;
  }
  return true;
}

void NumberStores::put_in_place(const StandIn& stand_in) {
  for (Store& store : stores_) store.holder = PyRef::share(stand_in(store.holder.get()));
}

int NumberStores::traverse(visitproc visit, void* arg) const {
  for (const Store& store : stores_) {
    Py_VISIT(store.holder.get());
    Py_VISIT(store.key.get());
  }
  return 0;
}

}  // namespace hostjit
