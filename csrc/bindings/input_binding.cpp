// SPDX-License-Identifier: Apache-2.0
#include "bindings/input_binding.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <pybind11/pybind11.h>

#include <string>

#include "support/check.h"

namespace py = pybind11;

namespace hostjit {

InputBinding::InputBinding(PyObject* description, size_t num_leaves) {
  if (PyLong_Check(description)) {
    leaf_ = PyLong_AsSsize_t(description);
    HOSTJIT_CHECK(leaf_ >= 0 && leaf_ < static_cast<Py_ssize_t>(num_leaves),
                  "an input is bound to leaf ", leaf_, ", the call has ", num_leaves);
    return;
  }
  if (THPVariable_Check(description)) {
    kind_ = Kind::kTensor;
    object_ = PyRef::share(description);
    guard_.emplace(THPVariable_Unpack(description));
    return;
  }
  HOSTJIT_CHECK(PyTuple_Check(description) && PyTuple_GET_SIZE(description) > 0,
                "an input is bound to a ", Py_TYPE(description)->tp_name,
                ", expected a leaf number, a tensor or a tuple");
  const auto parts = py::reinterpret_borrow<py::tuple>(description);
  const auto kind = parts[0].cast<std::string>();
  if (kind == "open") {
    kind_ = Kind::kScalar;
    slot_ = parts[1].cast<size_t>();
    HOSTJIT_CHECK(slot_ < Leaves::kMostNumbers, "an input is bound to open number ", slot_,
                  ", expected less than ", Leaves::kMostNumbers);
    if (parts.size() > 2) {
      kind_ = Kind::kOpen;
      is_float_ = py::object(parts[2]).ptr() == reinterpret_cast<PyObject*>(&PyFloat_Type);
    }
    return;
  }
  if (kind == "handed_on") {
    kind_ = Kind::kHandedOn;
    slot_ = parts[1].cast<size_t>();
    guard_.emplace(parts[2].cast<at::Tensor>());
    return;
  }
  object_ = PyRef::share(py::object(parts[1]).ptr());
  if (kind == "gradient") {
    kind_ = Kind::kGradient;
    if (parts.size() > 2) {
      guard_.emplace(parts[2].cast<at::Tensor>());
      return;
    }
    const at::Tensor& gradient = THPVariable_Unpack(object_.get()).grad();
    HOSTJIT_CHECK(gradient.defined(), "an input is bound to a gradient that is None");
    guard_.emplace(gradient);
    return;
  }
  if (kind == "attribute") {
    kind_ = Kind::kAttribute;
    key_ = PyRef::share(py::object(parts[2]).ptr());
    guard_.emplace(parts[3].cast<at::Tensor>());
    return;
  }
  HOSTJIT_CHECK(kind == "number", "an input is bound to a '", kind,
                "', expected gradient, attribute, number, open or handed_on");
  kind_ = Kind::kNumber;
  key_ = PyRef::share(py::object(parts[2]).ptr());
  if (!parts[3].is_none()) position_ = parts[3].cast<Py_ssize_t>();
  const c10::InferenceMode normal_tensors(/*enabled=*/false);
  number_ = at::zeros({}, at::kDouble);
  HOSTJIT_CHECK(read_number(), "an input is bound to a number that is no float");
}

// Null where there is none, or a subclass.
const at::Tensor* InputBinding::attribute() const {
  PyObject* found = PyDict_GetItemWithError(object_.get(), key_.get());
  if (found == nullptr) PyErr_Clear();
  return found && THPVariable_CheckExact(found) ? &THPVariable_Unpack(found) : nullptr;
}

bool InputBinding::read_number() {
  PyObject* found = PyDict_GetItemWithError(object_.get(), key_.get());
  if (found != nullptr && position_ >= 0) {
    if (!PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) <= position_) return false;
    found = PyTuple_GET_ITEM(found, position_);
  }
  if (found == nullptr) {
    PyErr_Clear();
    return false;
  }
  if (!PyFloat_CheckExact(found)) return false;
  *static_cast<double*>(number_.unsafeGetTensorImpl()->mutable_data()) = PyFloat_AS_DOUBLE(found);
  return true;
}

bool InputBinding::look_again() {
  const at::Tensor& tensor = THPVariable_Unpack(object_.get());
  if (!guard_->matches(tensor)) return false;
  snapshot_.take(tensor);
  return true;
}

bool InputBinding::other_holds() {
  switch (kind_) {
    case Kind::kLeaf:  // part of the arguments
    case Kind::kTensor: return holds();
    case Kind::kScalar:
    case Kind::kOpen:
    case Kind::kHandedOn: return true;
    case Kind::kTensorOfAnySize:
      return guard_->matches_of_any_size(THPVariable_Unpack(object_.get()));
    case Kind::kGradient: {
      const at::Tensor& gradient = THPVariable_Unpack(object_.get()).grad();
      return gradient.defined() && guard_->matches(gradient);
    }
    case Kind::kAttribute: {
      const at::Tensor* tensor = attribute();
      return tensor != nullptr && guard_->matches(*tensor);
    }
    case Kind::kNumber: return read_number();
  }
  return false;
}

const at::Tensor& InputBinding::open_tensor(const Leaves& leaves) const {
  if (leaves.number_tensors.empty()) leaves.number_tensors.resize(Leaves::kMostNumbers);
  at::Tensor& tensor = leaves.number_tensors[slot_];
  if (!tensor.defined()) {
    tensor = at::detail::empty_cpu({}, is_float_ ? at::kDouble : at::kLong);
    *static_cast<int64_t*>(tensor.unsafeGetTensorImpl()->mutable_data()) = leaves.numbers[slot_];
  }
  return tensor;
}

const at::Tensor& InputBinding::handed_tensor(const Leaves& leaves) const {
  static const at::Tensor kNotYet;
  return slot_ < leaves.handed_on.size() ? leaves.handed_on[slot_] : kNotYet;
}

const at::Tensor& InputBinding::other_tensor(const Leaves& leaves) const {
  if (kind_ == Kind::kOpen) return open_tensor(leaves);
  if (kind_ == Kind::kHandedOn) return handed_tensor(leaves);
  if (kind_ == Kind::kNumber || kind_ == Kind::kScalar) return number_;
  if (kind_ == Kind::kAttribute) return *attribute();  // no Python code has run since holds()
  const at::Tensor& tensor = THPVariable_Unpack(object_.get());
  return kind_ == Kind::kGradient ? tensor.grad() : tensor;
}

bool InputBinding::fits_in_place(PyObject* before, PyObject* now) const {
  if (!object_ || object_.get() != before) return true;
  const at::Tensor& tensor = THPVariable_Unpack(now);
  return kind_ == Kind::kTensor            ? guard_->matches(tensor)
         : kind_ == Kind::kTensorOfAnySize ? guard_->matches_of_any_size(tensor)
                                           : false;
}

void InputBinding::put_in_place(const StandIn& stand_in) {
  PyObject* const now = object_ ? stand_in(object_.get()) : nullptr;
  if (now == object_.get()) return;
  object_ = PyRef::share(now);
  snapshot_ = {};
}

std::optional<DType> InputBinding::number_type() const {
  if (kind_ == Kind::kNumber) return DType::kF64;
  if (kind_ == Kind::kOpen) return is_float_ ? DType::kF64 : DType::kI64;
  return std::nullopt;
}

bool InputBinding::needs_gradient() const {
  if (kind_ == Kind::kAttribute) return false;
  return object_ && kind_ != Kind::kNumber && THPVariable_Unpack(object_.get()).requires_grad();
}

int InputBinding::traverse(visitproc visit, void* arg) const {
  Py_VISIT(object_.get());
  Py_VISIT(key_.get());
  return 0;
}

std::vector<InputBinding> input_bindings_from_python(PyObject* descriptions, size_t num_leaves) {
  const PyRef items = PyRef::steal(PySequence_Fast(descriptions, "bindings is no sequence"));
  HOSTJIT_CHECK(items, "specialization: bindings is no sequence");
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(items.get());
  std::vector<InputBinding> bindings;
  bindings.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    bindings.emplace_back(PySequence_Fast_GET_ITEM(items.get(), i), num_leaves);
  }
  return bindings;
}

}  // namespace hostjit
