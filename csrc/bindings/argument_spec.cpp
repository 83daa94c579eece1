// SPDX-License-Identifier: Apache-2.0
#include "bindings/argument_spec.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <bit>

#include "bindings/value_equality.h"
#include "support/check.h"

namespace hostjit {
namespace {

// Where the i-th object is first.
size_t first_index(const c10::SmallVectorImpl<PyObject*>& objects, size_t i) {
  return std::find(objects.begin(), objects.begin() + i, objects[i]) - objects.begin();
}

// What a dict has for a class, null for nothing; its metaclass is not asked for a hash.
PyObject* compared_of(PyObject* by_fields, PyObject* type) {
  if (by_fields == nullptr) return nullptr;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(by_fields, &position, &key, &value) != 0) {
    if (key == type) return value;
  }
  return nullptr;
}

// The dict of an object's attributes; null if its type has none.
PyRef attributes_of(PyObject* object) {
  if (Py_TYPE(object)->tp_dictoffset == 0) return {};
  PyRef found = PyRef::steal(PyObject_GenericGetDict(object, nullptr));
  if (!found) PyErr_Clear();
  return found;
}

// Calls `visit` with each key and value of a dict; returns a tuple of the keys.
template <typename Visit>
PyRef visit_items(PyObject* dict, const Visit& visit) {
  PyRef keys = PyRef::steal(PyTuple_New(PyDict_GET_SIZE(dict)));
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  Py_ssize_t count = 0;
  while (PyDict_Next(dict, &position, &key, &value) != 0) {
    Py_INCREF(key);
    PyTuple_SET_ITEM(keys.get(), count++, key);
    visit(key, value);
  }
  return keys;
}

bool is_among(PyObject* names, PyObject* name) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    if (equal(PyTuple_GET_ITEM(names, i), name)) return true;
  }
  return false;
}

bool is_of_modules(PyObject* object) {
  return ArgumentNode::is_module(reinterpret_cast<PyObject*>(Py_TYPE(object)));
}

// Whether all attributes have names that code can read them by; others are not compared.
bool has_names_alone(PyObject* object) {
  const PyRef attributes = attributes_of(object);
  PyObject* key = nullptr;
  Py_ssize_t position = 0;
  while (attributes && PyDict_Next(attributes.get(), &position, &key, nullptr) != 0) {
    if (!PyUnicode_CheckExact(key)) return false;
  }
  return true;
}

bool has_hooks(PyObject* module) {
  const PyRef attributes = attributes_of(module);
  if (!attributes) return true;
  PyObject* const names = ArgumentNode::module_fields.hooks;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* hooks = PyDict_GetItemWithError(attributes.get(), PyTuple_GET_ITEM(names, i));
    if (hooks == nullptr) PyErr_Clear();
    if (hooks != nullptr && (!PyDict_Check(hooks) || PyDict_GET_SIZE(hooks) != 0)) return true;
  }
  return false;
}

// Whether an int of the type of bound Dims is a number; its own comparison, in Python, would say
// so.
bool is_number_of(PyObject* bound, PyObject* number) {
  const PyRef same = PyRef::steal(PyLong_Type.tp_richcompare(bound, number, Py_EQ));
  if (!same) PyErr_Clear();
  return same.get() == Py_True;
}

}  // namespace

// Objects of C code, such as a functools.partial, are seldom what keeps state from call to call.
bool is_held_weakly(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type->tp_weaklistoffset == 0) return false;
  if (PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE)) return false;
  if (reinterpret_cast<PyHeapTypeObject*>(type)->ht_module != nullptr) return false;
  return !PyType_Check(object) && !THPVariable_Check(object);
}

bool Leaves::are_distinct_from(size_t first) const {
  for (size_t i = first; i < objects.size(); ++i) {
    if (first_index(objects, i) != i) return false;
  }
  return true;
}

PyTypeObject* ArgumentNode::bound_dim_type = nullptr;
std::vector<PyTypeObject*> ArgumentNode::plain_tensor_types;
ArgumentNode::ModuleFields ArgumentNode::module_fields;

bool ArgumentNode::is_module(PyObject* type) {
  return module_fields.type != nullptr &&
         PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), module_fields.type) != 0;
}

ArgumentNode::ArgumentNode(Kind kind, PyObject* example)
    : kind_(kind), type_(PyRef::share(reinterpret_cast<PyObject*>(Py_TYPE(example)))) {}

ArgumentNode::ArgumentNode(PyObject* example, std::vector<PyObject*>& leaves, PyObject* by_fields)
    : kind_(Kind::kIdentity),
      expected_(PyRef::share(example)),
      type_(PyRef::share(reinterpret_cast<PyObject*>(Py_TYPE(example)))) {
  const auto add_children = [&](PyObject* const* values, Py_ssize_t count) {
    children_.reserve(count);
    for (Py_ssize_t i = 0; i < count; ++i) children_.emplace_back(values[i], leaves, by_fields);
    expected_ = PyRef();
  };
  if (THPVariable_CheckExact(example) ||
      std::ranges::find(plain_tensor_types, Py_TYPE(example)) != plain_tensor_types.end()) {
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
    add_items(example, leaves, by_fields);
  } else if (PyObject* compared = compared_of(by_fields, type_.get());
             compared != nullptr && has_names_alone(example) &&
             !(is_of_modules(example) && has_hooks(example))) {
    kind_ = Kind::kObject;
    add_fields(example, compared, leaves, by_fields);
  } else if (is_held_weakly(example)) {
    if (PyRef reference = PyRef::steal(PyWeakref_NewRef(example, nullptr))) {
      kind_ = Kind::kWeakIdentity;
      expected_ = std::move(reference);
    } else {
      PyErr_Clear();
    }
  }
}

PyObject* ArgumentNode::referent() const {
  return reinterpret_cast<PyWeakReference*>(expected_.get())->wr_object;
}

bool ArgumentNode::add_weak_objects(std::vector<PyObject*>& objects) const {
  if (kind_ == Kind::kWeakIdentity) {
    if (referent() == Py_None) return false;
    objects.push_back(referent());
  }
  return std::ranges::all_of(
      children_, [&](const ArgumentNode& child) { return child.add_weak_objects(objects); });
}

std::vector<PyObject*> ArgumentSpec::weak_objects() const {
  std::vector<PyObject*> objects;
  for (const ArgumentNode& node : nodes_) node.add_weak_objects(objects);
  return objects;
}

bool ArgumentSpec::has_its_objects() const {
  std::vector<PyObject*> objects;
  return std::ranges::all_of(
      nodes_, [&](const ArgumentNode& node) { return node.add_weak_objects(objects); });
}

void ArgumentNode::add_items(PyObject* dict, std::vector<PyObject*>& leaves, PyObject* by_fields) {
  expected_ = visit_items(dict, [&](PyObject* /*key*/, PyObject* value) {
    children_.emplace_back(value, leaves, by_fields);
  });
}

void ArgumentNode::add_fields(PyObject* example, PyObject* compared, std::vector<PyObject*>& leaves,
                              PyObject* by_fields) {
  slots_ = PyRef::share(PyTuple_GET_ITEM(compared, 0));
  PyObject* const read = PyTuple_GET_ITEM(compared, 1);
  const bool of_module = is_of_modules(example);
  const auto add = [&](PyObject* name, PyObject* value) {
    if (of_module && is_among(module_fields.hooks, name)) {
      children_.push_back(ArgumentNode(Kind::kEmptyDict, value));
    } else if ((of_module && is_among(module_fields.unread, name)) ||
               (read != Py_None && !is_among(read, name))) {
      children_.push_back(ArgumentNode(Kind::kUnread, value));
    } else {
      children_.emplace_back(value, leaves, by_fields);
      const bool is_state = of_module && is_among(module_fields.state, name);
      if (is_state && children_.back().kind_ == Kind::kDict) children_.back().kind_ = Kind::kItems;
    }
  };
  expected_ = PyRef();
  if (const PyRef attributes = attributes_of(example)) {
    expected_ = visit_items(attributes.get(), add);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots_.get()); ++i) {
    PyObject* name = PyTuple_GET_ITEM(slots_.get(), i);
    const PyRef value = PyRef::steal(PyObject_GenericGetAttr(example, name));
    if (!value) PyErr_Clear();
    HOSTJIT_CHECK(value, "specialization: an object that is compared by its fields is a ",
                  Py_TYPE(example)->tp_name, ", of which a slot is empty");
    add(name, value.get());
  }
}

bool ArgumentNode::match_items(PyObject* dict, Leaves& leaves) const {
  const Py_ssize_t size = PyTuple_GET_SIZE(expected_.get());
  if (PyDict_GET_SIZE(dict) != size) return false;
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  Py_ssize_t position = 0;
  for (Py_ssize_t i = 0; i < size && PyDict_Next(dict, &position, &key, &item) != 0; ++i) {
    if (!equal(key, PyTuple_GET_ITEM(expected_.get(), i))) return false;
    if (!children_[static_cast<size_t>(i)].match(item, leaves)) return false;
    // Whoever goes through the parameters of a module meets each of them once.
    if (kind_ == Kind::kItems && THPVariable_Check(item)) leaves.objects.push_back(item);
  }
  return true;
}

bool ArgumentNode::match_fields(PyObject* value, Leaves& leaves) const {
  leaves.objects.push_back(value);
  size_t child = 0;
  if (expected_) {
    const PyRef attributes = attributes_of(value);
    if (!attributes || !match_items(attributes.get(), leaves)) return false;
    child = static_cast<size_t>(PyTuple_GET_SIZE(expected_.get()));
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots_.get()); ++i, ++child) {
    const PyRef found =
        PyRef::steal(PyObject_GenericGetAttr(value, PyTuple_GET_ITEM(slots_.get(), i)));
    if (!found) PyErr_Clear();
    if (!found || !children_[child].match(found.get(), leaves)) return false;
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
  if (kind_ != Kind::kTensor && kind_ != Kind::kTensorOfAnySize) return match_other(value, leaves);
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != type_.get()) return false;
  leaves.push_back(value);
  const at::Tensor& tensor = THPVariable_Unpack(value);
  return kind_ == Kind::kTensor ? guard_->matches(tensor) : guard_->matches_of_any_size(tensor);
}

bool ArgumentNode::has_type(PyObject* value) const {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) == type_.get()) [[likely]]
    return true;
  const bool is_int = type_.get() == reinterpret_cast<PyObject*>(&PyLong_Type);
  return is_int && Py_TYPE(value) == bound_dim_type;
}

// By itself: it saves more registers than tensors need.
[[gnu::noinline]] bool ArgumentNode::match_other(PyObject* value, Leaves& leaves) const {
  if (kind_ == Kind::kIdentity) return value == expected_.get();
  if (kind_ == Kind::kUnread) return !expected_ || has_type(value);
  if (kind_ == Kind::kWeakIdentity) return value == referent() && value != Py_None;
  if (!has_type(value)) return false;
  if (kind_ == Kind::kEqual && Py_TYPE(value) == bound_dim_type) [[unlikely]] {
    return is_number_of(value, expected_.get());
  }
  switch (kind_) {
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
      leaves.objects.push_back(value);
      for (size_t i = 0; i < children_.size(); ++i) {
        if (!children_[i].match(PyList_GET_ITEM(value, i), leaves)) return false;
      }
      return true;
    case Kind::kDict:
      leaves.objects.push_back(value);
      return iterates_as_stored(value) && match_items(value, leaves);
    case Kind::kItems: return iterates_as_stored(value) && match_items(value, leaves);
    case Kind::kEmptyDict: return PyDict_GET_SIZE(value) == 0;
    case Kind::kObject: return match_fields(value, leaves);
    case Kind::kTensor:
    case Kind::kTensorOfAnySize:
    case Kind::kIdentity:
    case Kind::kUnread:
    case Kind::kWeakIdentity: break;
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

void ArgumentNode::leave_unread(std::span<const size_t> path) {
  HOSTJIT_CHECK(kind_ != Kind::kTensor, "specialization: a tensor is said to be unread");
  if (path.empty()) {
    kind_ = Kind::kUnread;
    for (ArgumentNode& child : children_) child.leave_unread({});
    return;
  }
  HOSTJIT_CHECK(path.front() < children_.size(), "specialization: an argument has ",
                children_.size(), " items, number ", path.front(), " is said to be unread");
  children_[path.front()].leave_unread(path.subspan(1));
}

bool ArgumentNode::is_number() const {
  const bool is_value = kind_ == Kind::kEqual || (kind_ == Kind::kUnread && expected_);
  return kind_ == Kind::kOpenNumber || kind_ == Kind::kFloat ||
         (is_value && (PyLong_CheckExact(expected_.get()) || PyFloat_CheckExact(expected_.get())));
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
  if (kind_ == Kind::kUnread) return true;
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
  Py_VISIT(slots_.get());
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

ArgumentSpec::ArgumentSpec(PyObject* args, PyObject* kwargs, PyObject* by_fields,
                           const std::vector<Path>& unread)
    : num_positional_(PyTuple_GET_SIZE(args)) {
  std::vector<PyObject*> values;
  const auto add = [&](PyObject* value) {
    nodes_.emplace_back(value, example_leaves_, by_fields);
    values.push_back(value);
  };
  for (Py_ssize_t i = 0; i < num_positional_; ++i) add(PyTuple_GET_ITEM(args, i));
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (kwargs != nullptr && PyDict_Next(kwargs, &position, &key, &value) != 0) {
    names_.push_back(PyRef::share(key));
    add(value);
  }
  for (const Path& path : unread) {
    HOSTJIT_CHECK(!path.empty() && path.front() < nodes_.size(),
                  "specialization: there is no such argument as is said to be unread");
    nodes_[path.front()].leave_unread(std::span(path).subspan(1));
  }
  Leaves found;
  for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].match(values[i], found);
  example_objects_.assign(found.objects.begin(), found.objects.end());
  for (size_t i = 0; i < found.objects.size(); ++i) {
    first_of_.push_back(first_index(found.objects, i));
  }
}

bool ArgumentSpec::has_same_objects(const Leaves& leaves) const {
  const auto& objects = leaves.objects;
  constexpr size_t kFew = 16;
  if (objects.size() != first_of_.size()) return false;
  if (objects.size() <= kFew) {
    for (size_t i = 0; i < objects.size(); ++i) {
      if (first_index(objects, i) != first_of_[i]) return false;
    }
    return true;
  }
  c10::SmallVector<std::pair<PyObject*, size_t>, 64> sorted;
  for (size_t i = 0; i < objects.size(); ++i) sorted.emplace_back(objects[i], i);
  std::ranges::sort(sorted);
  size_t first = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i == 0 || sorted[i].first != sorted[i - 1].first) first = sorted[i].second;
    if (first_of_[sorted[i].second] != first) return false;
  }
  return true;
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
