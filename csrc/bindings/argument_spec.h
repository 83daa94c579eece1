// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <c10/util/SmallVector.h>
#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bindings/open_number.h"
#include "bindings/py_ref.h"
#include "bindings/tensor_guard.h"

namespace hostjit {

class ProgramRow;

// Python objects that follow from the open numbers of one call; see NumberResults.
using NumberValues = c10::SmallVector<PyRef, 8>;

// Tensor leaves of one call, borrowed from its arguments, its open numbers and what follows from
// them, and the row that answers it.
struct Leaves : c10::SmallVector<PyObject*, 16> {
  static constexpr size_t kMostNumbers = 16;

  ProgramRow* row = nullptr;
  std::array<int64_t, kMostNumbers> numbers;  // set as far as the specialization has some
  NumberValues values;                        // empty until they are wanted
  // Of open numbers that a program takes as tensors: by slot, from the first that is made on.
  mutable std::vector<at::Tensor> number_tensors;
  // What a ReadCheck has computed on the way, for the program.
  mutable std::vector<at::Tensor> handed_on;
  // The lists, the dicts, the objects that were compared by their fields, and the parameters and
  // buffers of those, borrowed: code may ask which of them are one, and changes one where it
  // changes another.
  c10::SmallVector<PyObject*, 4> objects;

  // Whether the objects from the `first` on are neither each other nor one before them.
  bool are_distinct_from(size_t first) const;
};

// Whether guards leave it to others to keep an object alive: one of a class of Python code, if it
// can be referred to weakly, which is no class or tensor.
bool is_held_weakly(PyObject* object);

// What one argument has to look like, recursively. Built from an example value:
//   torch.Tensor, Parameter       the exact type and a TensorGuard; becomes a leaf
//   int, str, bytes, device, ...  the same type and an equal value
//   float, complex                the same bits
//   tuple, list, dict, namedtuple the same type, length and keys; children in order
//   an object of certain types    the same type and fields, which are the items of its __dict__ and
//                                 then its slots; of a module, see ModuleFields
//   anything else                 the same object: None, bool, modules, dtypes; one that
//                                 is_held_weakly() while it lives
// Where an int is expected, one of the type of bound Dims will do.
// An int or a float may be made an open number.
class ArgumentNode {
 public:
  // A subclass of int, or null. Borrowed: it lives as long as the module that registers it.
  static PyTypeObject* bound_dim_type;

  // Subclasses of tensors that compute as plain ones do, and are compared as these are. Never
  // forgotten.
  static std::vector<PyTypeObject*> plain_tensor_types;

  // Of torch.nn.Module, which are compared by their fields where their class is named, unless one
  // has hooks. Borrowed as that is; null where no class is.
  struct ModuleFields {
    PyTypeObject* type = nullptr;
    PyObject* hooks = nullptr;   // tuple of names of dicts that are to be empty
    PyObject* unread = nullptr;  // tuple of names of what no call reads
    PyObject* state = nullptr;   // tuple of names of dicts of which nobody asks which one it is
  };
  static ModuleFields module_fields;
  static bool is_module(PyObject* type);

  // `by_fields`: a dict from types of objects that are compared by their fields, unless one has
  // attributes whose names are no texts, to pairs: a tuple of the names of their slots, and one of
  // the names of the fields that are read, None for all; or null.
  ArgumentNode(PyObject* example, std::vector<PyObject*>& leaves, PyObject* by_fields);

  // Appends the tensor leaves of `value`, in order, and tells whether it fits.
  bool match(PyObject* value, Leaves& leaves) const;

  // See descriptions.cpp.
  pybind11::tuple describe() const;

  // Lets the tensors of `positions` have any sizes and strides; `leaf` counts tensors.
  void free_sizes(const std::vector<bool>& positions, size_t& leaf);
  // Lets what is at `path`, the positions of a child, of a child of that and so on, be anything: in
  // the place of a constant any other of its type. No tensor may be there.
  void leave_unread(std::span<const size_t> path);
  // Makes the number leaf that `leaf` counts down to an open one, `slot` of the numbers of a call;
  // false when it is not here.
  bool open_number(size_t& leaf, const OpenNumber& number, size_t slot);

  // Appends the objects that are expected and held weakly; false where one is gone.
  bool add_weak_objects(std::vector<PyObject*>& objects) const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  enum class Kind {
    kTensor,
    kTensorOfAnySize,
    kIdentity,
    kWeakIdentity,
    kEqual,
    kOpenNumber,
    kFloat,
    kComplex,
    kTuple,
    kList,
    kDict,
    kItems,      // of a dict of which nobody asks which one it is
    kEmptyDict,  // the same, without any
    kUnread,
    kObject
  };
  ArgumentNode(Kind kind, PyObject* example);
  void add_items(PyObject* dict, std::vector<PyObject*>& leaves, PyObject* by_fields);
  // `compared`: what `by_fields` has for the type of the example.
  void add_fields(PyObject* example, PyObject* compared, std::vector<PyObject*>& leaves,
                  PyObject* by_fields);
  bool match_items(PyObject* dict, Leaves& leaves) const;
  bool match_fields(PyObject* value, Leaves& leaves) const;
  bool match_other(PyObject* value, Leaves& leaves) const;
  bool match_children(PyObject* const* values, Leaves& leaves) const;
  bool is_number() const;
  bool has_type(PyObject* value) const;

  Kind kind_;
  // Of a weak reference, borrowed; None if it is gone.
  PyObject* referent() const;

  PyRef expected_;  // the object, a weak reference to it, the value, or the tuple of keys of a dict
                    // or a __dict__
  PyRef slots_;     // the tuple of names of an object's
  PyRef type_;      // exact type of the value
  uint64_t bits_ = 0;  // of a float, or of the real part of a complex
  uint64_t imaginary_bits_ = 0;
  std::unique_ptr<TensorGuard> guard_;
  struct OpenSlot {
    OpenNumber number;
    size_t slot;
  };
  std::unique_ptr<OpenSlot> open_;
  std::vector<ArgumentNode> children_;
};

// The arguments of a call: positional ones, then keywords in the order they were given.
class ArgumentSpec {
 public:
  // Where something is in the arguments: the position of one, of an item of it and so on.
  using Path = std::vector<size_t>;

  // `args` is a tuple, `kwargs` a dict or null, `by_fields` as of ArgumentNode. `unread`: what the
  // code does not look at.
  ArgumentSpec(PyObject* args, PyObject* kwargs, PyObject* by_fields,
               const std::vector<Path>& unread);

  // Vectorcall arguments: `values` has nargs positional values and one per name of `kwnames`.
  bool match(PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames, Leaves& leaves) const;

  // Whether those of the objects of a call that matched are one that are one in the example.
  bool has_same_objects(const Leaves& leaves) const;

  // See descriptions.cpp.
  pybind11::tuple describe() const;

  // Of each list, dict and object that is compared by its fields, in order, where it is first.
  const std::vector<size_t>& first_of() const { return first_of_; }

  // Lets the tensor leaves of these positions have any sizes and strides: rows look at them.
  void free_sizes(const std::vector<bool>& positions);

  // Lets a call bring another number for the number leaf of this position, as number `slot` of its
  // leaves. Number leaves are the ints and floats, not the bools, in order. Throws Error when that
  // leaf is none of the kind.
  void open_number(size_t position, const OpenNumber& number, size_t slot);

  // The objects that calls are to bring and that are held weakly, borrowed.
  std::vector<PyObject*> weak_objects() const;
  // Whether they are all alive.
  bool has_its_objects() const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

  // The example's tensor leaves, and its objects; only valid while its arguments live.
  const std::vector<PyObject*>& example_leaves() const { return example_leaves_; }
  const std::vector<PyObject*>& example_objects() const { return example_objects_; }
  void forget_example() {
    example_leaves_.clear();
    example_objects_.clear();
  }

 private:
  Py_ssize_t num_positional_ = 0;
  std::vector<PyRef> names_;
  std::vector<ArgumentNode> nodes_;
  std::vector<PyObject*> example_leaves_;
  std::vector<PyObject*> example_objects_;
  std::vector<size_t> first_of_;  // of each object, where it is first
};

}  // namespace hostjit
