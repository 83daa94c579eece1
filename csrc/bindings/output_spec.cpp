// SPDX-License-Identifier: Apache-2.0
#include "bindings/output_spec.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/as_strided.h>
#include <c10/util/SmallVector.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <string>

#include "support/check.h"

namespace py = pybind11;

namespace hostjit {

OutputSpec::OutputSpec(PyObject* description, Py_ssize_t num_outputs, Py_ssize_t num_leaves,
                       Py_ssize_t num_values) {
  const auto parts = py::reinterpret_borrow<py::tuple>(description);
  const auto kind = parts[0].cast<std::string>();
  const auto position = [&](Py_ssize_t limit) {
    const auto index = parts[1].cast<Py_ssize_t>();
    HOSTJIT_CHECK(index >= 0 && index < limit, "output spec: ", kind, " ", index,
                  " is out of range, there are ", limit);
    return index;
  };
  const auto add_children = [&](const py::handle& nodes) {
    for (const py::handle node : nodes) {
      children_.emplace_back(node.ptr(), num_outputs, num_leaves, num_values);
    }
  };
  if (kind == "output") {
    kind_ = Kind::kOutput;
    index_ = position(num_outputs);
  } else if (kind == "number") {
    kind_ = Kind::kNumber;
    index_ = position(num_values);
  } else if (kind == "argument") {
    kind_ = Kind::kArgument;
    index_ = position(num_leaves);
  } else if (kind == "object") {
    kind_ = Kind::kObject;
    object_ = PyRef::share(parts[1].ptr());
  } else if (kind == "tuple" || kind == "list") {
    kind_ = kind == "tuple" ? Kind::kTuple : Kind::kList;
    add_children(parts[1]);
  } else if (kind == "dict" || kind == "call") {
    kind_ = kind == "dict" ? Kind::kDict : Kind::kCall;
    object_ = kind == "dict" ? PyRef::steal(PySequence_Tuple(parts[1].ptr()))
                             : PyRef::share(parts[1].ptr());
    add_children(parts[2]);
  } else if (kind == "item") {
    kind_ = Kind::kItem;
    add_children(parts[1]);
    HOSTJIT_CHECK(children_.size() == 1, "output spec: an item of ", children_.size(), " nodes");
  } else if (kind == "assign") {
    kind_ = Kind::kAssign;
    size_t expected = 1;
    for (const py::handle place : parts[1]) {
      const auto fields = py::reinterpret_borrow<py::tuple>(place);
      HOSTJIT_CHECK(PyDict_Check(fields[0].ptr()), "output spec: attributes are in a dict");
      places_.push_back({.dict = PyRef::share(fields[0].ptr()),
                         .name = PyRef::share(fields[1].ptr()),
                         .may_stay = fields[2].cast<bool>()});
      expected += 1 + static_cast<size_t>(places_.back().may_stay);
    }
    add_children(parts[2]);
    HOSTJIT_CHECK(children_.size() == expected, "output spec: ", children_.size(), " nodes where ",
                  expected, " are assigned");
  } else if (kind == "view") {
    kind_ = Kind::kView;
    view_ = std::make_shared<const View>(View{
        .sizes = view_numbers(parts[1], num_values),
        .strides = view_numbers(parts[2], num_values),
        .offset = ViewNumber(parts[3], num_values),
        .made = static_cast<torch::autograd::CreationMeta>(parts[4].cast<int>()),
        .base_strides = view_numbers(parts[5], num_values),
    });
    add_children(parts[6]);
    HOSTJIT_CHECK(children_.size() == 1, "output spec: a view of ", children_.size(), " nodes");
  } else {
    throw_error(concat("output spec: unknown kind '", kind,
                       "', expected output, number, argument, object, tuple, list, dict, call, "
                       "item, assign or view"));
  }
}

void OutputSpec::put_in_place(const StandIn& stand_in) {
  if (kind_ == Kind::kObject) object_ = PyRef::share(stand_in(object_.get()));
  for (OutputSpec& child : children_) child.put_in_place(stand_in);
}

int OutputSpec::traverse(visitproc visit, void* arg) const {
  Py_VISIT(object_.get());
  for (const Place& place : places_) {
    Py_VISIT(place.dict.get());
    Py_VISIT(place.name.get());
  }
  for (const OutputSpec& child : children_) {
    if (const int status = child.traverse(visit, arg)) return status;
  }
  return 0;
}

namespace {

PyObject* item_of(const at::Tensor& tensor) {
  HANDLE_TH_ERRORS
  const at::Scalar number = tensor.item();
  if (number.isFloatingPoint()) return PyFloat_FromDouble(number.toDouble());
  if (number.isBoolean()) return Py_NewRef(number.toBool() ? Py_True : Py_False);
  if (tensor.scalar_type() == at::kUInt64) return PyLong_FromUnsignedLongLong(number.toUInt64());
  if (number.isIntegral(/*includeBool=*/false)) return PyLong_FromLongLong(number.toLong());
  const auto complex = number.toComplexDouble();
  return PyComplex_FromDoubles(complex.real(), complex.imag());
  END_HANDLE_TH_ERRORS
}

}  // namespace

// What the nodes make is all there before the first attribute is another.
PyObject* OutputSpec::assign(void* const* outputs, PyObject* const* leaves,
                             const PyRef* values) const {
  c10::SmallVector<PyRef, 8> made;
  for (const OutputSpec& child : children_) {
    made.push_back(PyRef::steal(child.build_node(outputs, leaves, values)));
    if (!made.back()) return nullptr;
  }
  size_t next = 1;
  for (const Place& place : places_) {
    const PyRef& value = made[next++];
    if (place.may_stay && made[next++].get() == Py_True) continue;
    if (PyDict_SetItem(place.dict.get(), place.name.get(), value.get()) < 0) return nullptr;
  }
  return made.front().release();
}

PyObject* OutputSpec::build_node(void* const* outputs, PyObject* const* leaves,
                                 const PyRef* values) const {
  const auto count = static_cast<Py_ssize_t>(children_.size());
  switch (kind_) {
    case Kind::kOutput: return Py_NewRef(static_cast<PyObject*>(outputs[index_]));
    case Kind::kNumber: return Py_NewRef(values[index_].get());
    case Kind::kArgument: return Py_NewRef(leaves[index_]);
    case Kind::kObject: return Py_NewRef(object_.get());
    case Kind::kTuple:
    case Kind::kCall: {
      PyRef tuple = PyRef::steal(PyTuple_New(count));
      if (!tuple) return nullptr;
      for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* child = children_[i].build_node(outputs, leaves, values);
        if (child == nullptr) return nullptr;
        PyTuple_SET_ITEM(tuple.get(), i, child);
      }
      if (kind_ == Kind::kTuple) return tuple.release();
      return PyObject_CallObject(object_.get(), tuple.get());
    }
    case Kind::kList: {
      PyRef list = PyRef::steal(PyList_New(count));
      if (!list) return nullptr;
      for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* child = children_[i].build_node(outputs, leaves, values);
        if (child == nullptr) return nullptr;
        PyList_SET_ITEM(list.get(), i, child);
      }
      return list.release();
    }
    case Kind::kDict: {
      PyRef dict = PyRef::steal(PyDict_New());
      if (!dict) return nullptr;
      for (Py_ssize_t i = 0; i < count; ++i) {
        const PyRef child = PyRef::steal(children_[i].build_node(outputs, leaves, values));
        if (!child) return nullptr;
        PyObject* key = PyTuple_GET_ITEM(object_.get(), i);
        if (PyDict_SetItem(dict.get(), key, child.get()) < 0) return nullptr;
      }
      return dict.release();
    }
    case Kind::kItem: {
      const PyRef tensor = PyRef::steal(children_.front().build_node(outputs, leaves, values));
      return tensor ? item_of(THPVariable_Unpack(tensor.get())) : nullptr;
    }
    case Kind::kAssign: return assign(outputs, leaves, values);
    case Kind::kView: {
      const PyRef base = PyRef::steal(children_.front().build_node(outputs, leaves, values));
      return base ? make_view(THPVariable_Unpack(base.get()), values) : nullptr;
    }
  }
  return nullptr;
}

OutputSpec::ViewNumber::ViewNumber(const py::handle& description, Py_ssize_t num_values)
    : known(0), position(-1) {
  if (PyLong_Check(description.ptr())) {
    known = description.cast<int64_t>();
    return;
  }
  position = py::reinterpret_borrow<py::sequence>(description)[0].cast<Py_ssize_t>();
  HOSTJIT_CHECK(position >= 0 && position < num_values, "output spec: value ", position,
                " is out of range, there are ", num_values);
}

int64_t OutputSpec::ViewNumber::value(const PyRef* values) const {
  return position < 0 ? known : py::handle(values[position].get()).cast<int64_t>();
}

OutputSpec::ViewNumbers OutputSpec::view_numbers(const py::handle& description,
                                                 Py_ssize_t num_values) {
  ViewNumbers numbers;
  for (const py::handle number : description) numbers.emplace_back(number, num_values);
  return numbers;
}

namespace {

// The gradient of an expansion is one sum, which half types are rounded after once; that of
// as_strided sums dim after dim.
at::Tensor view_of(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides,
                   int64_t offset) {
  if (offset == 0 && at::is_expandable_to(base.sizes(), sizes)) {
    at::Tensor expanded = base.expand(sizes);
    if (expanded.strides() == strides) return expanded;
  }
  return at::as_strided(base, sizes, strides, base.storage_offset() + offset);
}

}  // namespace

// As the operator did that made the view in eager mode.
PyObject* OutputSpec::make_view(const at::Tensor& base, const PyRef* values) const {
  HANDLE_TH_ERRORS
  const auto read = [values](const ViewNumbers& numbers) {
    c10::SmallVector<int64_t, 5> found;
    for (const ViewNumber& number : numbers) found.push_back(number.value(values));
    return found;
  };
  const auto expected = read(view_->base_strides);
  HOSTJIT_ICHECK(base.strides() == at::IntArrayRef(expected), "a result with strides ",
                 base.strides(), " where its views were made for ", at::IntArrayRef(expected));
  const at::Tensor view =
      view_of(base, read(view_->sizes), read(view_->strides), view_->offset.value(values));
  namespace autograd = torch::autograd;
  if (auto* meta = autograd::impl::get_view_autograd_meta(view); meta && meta->has_bw_view())
    meta->set_creation_meta(
        autograd::propagate_creation_meta(view_->made, meta->get_creation_meta()));
  return THPVariable_Wrap(view);
  END_HANDLE_TH_ERRORS
}

}  // namespace hostjit
