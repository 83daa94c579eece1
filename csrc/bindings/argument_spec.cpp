// SPDX-License-Identifier: Apache-2.0
#include "bindings/argument_spec.h"

#include <structmember.h>

#include <torch/csrc/Device.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <bit>

#include "support/check.h"

namespace hostjit {
namespace {

// Tuples whose items are all there is to them: plain ones, torch.Size, namedtuples.
bool is_plain_tuple(PyObject* value) {
  return PyTuple_CheckExact(value) || THPSize_Check(value) ||
         (PyTuple_Check(value) && PyObject_HasAttrString(value, "_fields"));
}

// Values of which callers make a new object for every call.
bool compares_by_value(PyObject* value) {
  return PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) ||
         PyRange_Check(value) || PySlice_Check(value) || THPDevice_Check(value);
}

// The keys of a dict that PyDict_Next visits in iteration order: an OrderedDict whose items were
// moved is none of them.
bool iterates_as_stored(PyObject* dict) {
  if (PyDict_CheckExact(dict)) return true;
  if (!PyODict_CheckExact(dict)) return false;
  const PyRef keys = PyRef::steal(PySequence_List(dict));
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  for (Py_ssize_t i = 0; keys && PyDict_Next(dict, &position, &key, &value); ++i) {
    if (key != PyList_GET_ITEM(keys.get(), i)) return false;
  }
  return static_cast<bool>(keys);
}

// Equality of exact ints, bools' kin and strings; never raises for those.
bool equal(PyObject* a, PyObject* b) {
  if (a == b) return true;
  const int result = PyObject_RichCompareBool(a, b, Py_EQ);
  if (result < 0) PyErr_Clear();
  return result == 1;
}

// What an object has in a slot; null: nothing.
PyObject* object_at(PyObject* owner, Py_ssize_t offset) {
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(owner) + offset);
}

}  // namespace

PyTypeObject* ArgumentNode::bound_dim_type = nullptr;

ArgumentNode::ArgumentNode(PyObject* example, std::vector<PyObject*>& leaves, PyObject* opened)
    : kind_(Kind::kIdentity),
      expected_(PyRef::share(example)),
      type_(PyRef::share(reinterpret_cast<PyObject*>(Py_TYPE(example)))) {
  const auto add_children = [&](PyObject* const* values, Py_ssize_t count) {
    children_.reserve(count);
    for (Py_ssize_t i = 0; i < count; ++i) children_.emplace_back(values[i], leaves, opened);
    expected_ = PyRef();
  };
  if (THPVariable_CheckExact(example)) {
    kind_ = Kind::kTensor;
    guard_ = std::make_unique<TensorGuard>(THPVariable_Unpack(example));
    leaves.push_back(example);
    expected_ = PyRef();
  } else if (compares_by_value(example)) {
    kind_ = Kind::kEqual;
  } else if (PyFloat_CheckExact(example)) {
    kind_ = Kind::kFloat;
    bits_ = std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(example));
  } else if (PyComplex_CheckExact(example)) {
    kind_ = Kind::kComplex;
    bits_ = std::bit_cast<uint64_t>(PyComplex_RealAsDouble(example));
    imaginary_bits_ = std::bit_cast<uint64_t>(PyComplex_ImagAsDouble(example));
  } else if (is_plain_tuple(example)) {
    kind_ = Kind::kTuple;
    add_children(&PyTuple_GET_ITEM(example, 0), PyTuple_GET_SIZE(example));
  } else if (PyList_CheckExact(example)) {
    kind_ = Kind::kList;
    std::vector<PyObject*> items;
    items.reserve(static_cast<size_t>(PyList_GET_SIZE(example)));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(example); ++i) {
      items.push_back(PyList_GET_ITEM(example, i));
    }
    add_children(items.data(), static_cast<Py_ssize_t>(items.size()));
  } else if (PyDict_Check(example) && iterates_as_stored(example)) {
    kind_ = Kind::kDict;
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t position = 0;
    PyRef keys = PyRef::steal(PyTuple_New(PyDict_GET_SIZE(example)));
    Py_ssize_t count = 0;
    while (PyDict_Next(example, &position, &key, &value)) {
      Py_INCREF(key);
      PyTuple_SET_ITEM(keys.get(), count++, key);
      children_.emplace_back(value, leaves, opened);
    }
    expected_ = std::move(keys);
  } else if (opened != nullptr) {
    PyObject* members = PyDict_GetItemWithError(opened, type_.get());
    if (members != nullptr) open_object(example, members, leaves, opened);
  }
}

void ArgumentNode::open_object(PyObject* example, PyObject* members, std::vector<PyObject*>& leaves,
                               PyObject* opened) {
  kind_ = Kind::kObject;
  expected_ = PyRef();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members); ++i) {
    PyObject* member = PyTuple_GET_ITEM(members, i);
    HOSTJIT_ICHECK(Py_TYPE(member) == &PyMemberDescr_Type, "a slot is a ",
                   Py_TYPE(member)->tp_name);
    slots_.push_back(reinterpret_cast<PyMemberDescrObject*>(member)->d_member->offset);
    PyObject* field = object_at(example, slots_.back());
    HOSTJIT_ICHECK(field != nullptr, "a slot of an opened object is empty");
    children_.emplace_back(field, leaves, opened);
  }
  if (Py_TYPE(example)->tp_dictoffset == 0) return;
  const PyRef attributes = PyRef::steal(PyObject_GenericGetDict(example, nullptr));
  if (!attributes) throw pybind11::error_already_set();
  expected_ = PyRef::steal(PySequence_Tuple(attributes.get()));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(expected_.get()); ++i) {
    PyObject* key = PyTuple_GET_ITEM(expected_.get(), i);
    children_.emplace_back(PyDict_GetItemWithError(attributes.get(), key), leaves, opened);
  }
}

bool ArgumentNode::match_object(PyObject* value, Leaves& leaves) const {
  const size_t num_slots = slots_.size();
  for (size_t i = 0; i < num_slots; ++i) {
    PyObject* field = object_at(value, slots_[i]);
    if (field == nullptr || !children_[i].match(field, leaves)) return false;
  }
  if (!expected_) return true;
  // What is in it is borrowed: the object keeps it.
  const PyRef attributes = PyRef::steal(PyObject_GenericGetDict(value, nullptr));
  if (!attributes) PyErr_Clear();
  return attributes && match_items(attributes.get(), num_slots, leaves);
}

bool ArgumentNode::match_items(PyObject* dict, size_t first_child, Leaves& leaves) const {
  const size_t size = children_.size() - first_child;
  if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(size)) return false;
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  Py_ssize_t position = 0;
  for (size_t i = 0; PyDict_Next(dict, &position, &key, &item); ++i) {
    if (!equal(key, PyTuple_GET_ITEM(expected_.get(), i))) return false;
    if (!children_[first_child + i].match(item, leaves)) return false;
  }
  return true;
}

bool ArgumentNode::match_children(PyObject* const* values, Leaves& leaves) const {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (!children_[i].match(values[i], leaves)) return false;
  }
  return true;
}

bool ArgumentNode::match(PyObject* value, Leaves& leaves) const {
  if (kind_ == Kind::kIdentity) return value == expected_.get();
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != type_.get()) [[unlikely]] {
    const bool is_bound_dim = Py_TYPE(value) == bound_dim_type;
    if (!is_bound_dim || type_.get() != reinterpret_cast<PyObject*>(&PyLong_Type)) return false;
  }
  switch (kind_) {
    case Kind::kTensor: leaves.push_back(value); return guard_->matches(THPVariable_Unpack(value));
    case Kind::kTensorOfAnySize:
      leaves.push_back(value);
      return guard_->matches_of_any_size(THPVariable_Unpack(value));
    case Kind::kEqual: return equal(value, expected_.get());
    case Kind::kOpenNumber: return open_->number.read(value, leaves.numbers[open_->slot]);
    case Kind::kFloat: return std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(value)) == bits_;
    case Kind::kComplex:
      return std::bit_cast<uint64_t>(PyComplex_RealAsDouble(value)) == bits_ &&
             std::bit_cast<uint64_t>(PyComplex_ImagAsDouble(value)) == imaginary_bits_;
    case Kind::kTuple:
      return PyTuple_GET_SIZE(value) == static_cast<Py_ssize_t>(children_.size()) &&
             match_children(&PyTuple_GET_ITEM(value, 0), leaves);
    case Kind::kList:
      if (PyList_GET_SIZE(value) != static_cast<Py_ssize_t>(children_.size())) return false;
      for (size_t i = 0; i < children_.size(); ++i) {
        if (!children_[i].match(PyList_GET_ITEM(value, i), leaves)) return false;
      }
      return true;
    case Kind::kDict:
      return iterates_as_stored(value) && match_items(value, /*first_child=*/0, leaves);
    case Kind::kObject: return match_object(value, leaves);
    case Kind::kIdentity: break;
  }
  return false;
}

void ArgumentNode::free_sizes(const std::vector<bool>& positions, size_t& leaf) {
  if (kind_ == Kind::kTensor && positions[leaf++]) kind_ = Kind::kTensorOfAnySize;
  for (ArgumentNode& child : children_) child.free_sizes(positions, leaf);
}

void ArgumentSpec::free_sizes(const std::vector<bool>& positions) {
  size_t leaf = 0;
  for (ArgumentNode& node : nodes_) node.free_sizes(positions, leaf);
}

bool ArgumentNode::is_number() const {
  return kind_ == Kind::kOpenNumber || kind_ == Kind::kFloat ||
         (kind_ == Kind::kEqual && PyLong_CheckExact(expected_.get()));
}

bool ArgumentNode::open_number(size_t& leaf, const OpenNumber& number, size_t slot) {
  if (!is_number()) {
    return std::ranges::any_of(
        children_, [&](ArgumentNode& child) { return child.open_number(leaf, number, slot); });
  }
  if (leaf-- != 0) return false;
  HOSTJIT_CHECK(number.is_kind_of(expected_.get()), "specialization: an open number is a ",
                Py_TYPE(expected_.get())->tp_name, ", expected ",
                number.is_float ? "a float" : "an int");
  kind_ = Kind::kOpenNumber;
  open_ = std::make_unique<OpenSlot>(OpenSlot{number, slot});
  return true;
}

void ArgumentSpec::open_number(size_t position, const OpenNumber& number, size_t slot) {
  HOSTJIT_CHECK(slot < Leaves::kMostNumbers, "specialization: more than ", Leaves::kMostNumbers,
                " open numbers");
  size_t leaf = position;
  const bool found = std::ranges::any_of(
      nodes_, [&](ArgumentNode& node) { return node.open_number(leaf, number, slot); });
  HOSTJIT_CHECK(found, "specialization: number ", position, " is open, the call has ",
                position - leaf, " numbers");
}

int ArgumentNode::traverse(visitproc visit, void* arg) const {
  Py_VISIT(expected_.get());
  Py_VISIT(type_.get());
  for (const ArgumentNode& child : children_) {
    if (const int status = child.traverse(visit, arg)) return status;
  }
  return 0;
}

int ArgumentSpec::traverse(visitproc visit, void* arg) const {
  for (const PyRef& name : names_) Py_VISIT(name.get());
  for (const ArgumentNode& node : nodes_) {
    if (const int status = node.traverse(visit, arg)) return status;
  }
  return 0;
}

ArgumentSpec::ArgumentSpec(PyObject* args, PyObject* kwargs, PyObject* opened)
    : num_positional_(PyTuple_GET_SIZE(args)) {
  for (Py_ssize_t i = 0; i < num_positional_; ++i) {
    nodes_.emplace_back(PyTuple_GET_ITEM(args, i), example_leaves_, opened);
  }
  if (kwargs == nullptr) return;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(kwargs, &position, &key, &value)) {
    names_.push_back(PyRef::share(key));
    nodes_.emplace_back(value, example_leaves_, opened);
  }
}

bool ArgumentSpec::match(PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames,
                         Leaves& leaves) const {
  const size_t num_names = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (nargs != num_positional_ || num_names != names_.size()) return false;
  for (size_t i = 0; i < num_names; ++i) {
    if (!equal(PyTuple_GET_ITEM(kwnames, i), names_[i].get())) return false;
  }
  const ArgumentNode* node = nodes_.data();
  for (const ArgumentNode* end = node + nodes_.size(); node != end; ++node, ++values) {
    if (!node->match(*values, leaves)) return false;
  }
  return true;
}

}  // namespace hostjit
