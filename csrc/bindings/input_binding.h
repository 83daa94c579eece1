// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <vector>

#include "bindings/argument_spec.h"
#include "bindings/py_ref.h"
#include "bindings/stand_in.h"
#include "bindings/tensor_guard.h"
#include "bindings/tensor_snapshot.h"

namespace hostjit {

// Where one input of a program is found at a call. Made from
//   an int                            that tensor leaf of the arguments
//   a Tensor                          that tensor, held by reference
//   ("gradient", tensor)              what `tensor.grad` then is, like what it is now
//   ("gradient", tensor, example)     the same, like the example
//   ("attribute", dict, key, example) the tensor dict[key], no subclass, like the example
//   ("number", dict, key, position)   the float dict[key], or dict[key][position], as a tensor
//   ("open", slot)                    that open number of the call, a scalar
//   ("open", slot, type)              the same as a tensor without dims: of int64, or of float64
//   ("handed_on", slot, example)      that tensor which a ReadCheck hands on, like the example
class InputBinding {
 public:
  // Throws Error for anything else, and for a leaf that a call with `num_leaves` does not have.
  InputBinding(PyObject* description, size_t num_leaves);

  // The input is what the program was compiled for. Reads a number: tensor() is that from now on.
  bool holds() {
    if (kind_ == Kind::kTensor) [[likely]]
      return snapshot_.is_current() || look_again();
    return kind_ == Kind::kLeaf || other_holds();
  }
  const at::Tensor& tensor(const Leaves& leaves) const {
    if (kind_ == Kind::kLeaf) return THPVariable_Unpack(leaves[leaf_]);
    if (kind_ == Kind::kTensor) [[likely]]
      return THPVariable_Unpack(object_.get());
    return other_tensor(leaves);
  }
  // How the program takes a tensor held by reference of which holds() knows that it is as before;
  // null for others.
  const TensorArg* known_argument() const { return snapshot_.argument(); }
  // Whether it is an open number: then tensor() is undefined.
  bool is_scalar() const { return kind_ == Kind::kScalar; }
  // The dtype of a number that it is as a tensor without dims; nullopt for what is none.
  std::optional<DType> number_type() const;
  // Whether it is what an object has in its dict; Python code may replace that at any time.
  bool is_attribute() const { return kind_ == Kind::kAttribute; }
  int64_t scalar(const Leaves& leaves) const { return leaves.numbers[slot_]; }
  // Of what a ReadCheck hands on; nullopt for what is none of that.
  std::optional<size_t> handed_on() const {
    return kind_ == Kind::kHandedOn ? std::optional(slot_) : std::nullopt;
  }
  // Of the arguments; -1 for what is none.
  Py_ssize_t leaf() const { return leaf_; }
  // Leaves the sizes to others; a tensor held by reference still is what it was otherwise.
  void free_sizes() {
    if (kind_ != Kind::kTensor) return;
    kind_ = Kind::kTensorOfAnySize;
    snapshot_ = {};
  }
  // Whether another tensor may be held by reference in the place of `before`, if that is what it
  // holds: it is what the program was compiled for.
  bool fits_in_place(PyObject* before, PyObject* now) const;
  void put_in_place(const StandIn& stand_in);
  // What it was made from.
  pybind11::object describe() const;
  // What is known of a tensor held by reference, else None; see descriptions.cpp.
  pybind11::object describe_guard() const;
  // Held by reference, or its gradient is.
  bool needs_gradient() const;

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  enum class Kind {
    kLeaf,
    kTensor,
    kTensorOfAnySize,
    kGradient,
    kAttribute,
    kNumber,
    kScalar,
    kOpen,
    kHandedOn
  };
  bool look_again();
  bool other_holds();
  const at::Tensor& other_tensor(const Leaves& leaves) const;
  const at::Tensor& open_tensor(const Leaves& leaves) const;
  const at::Tensor& handed_tensor(const Leaves& leaves) const;
  const at::Tensor* attribute() const;
  bool read_number();

  Kind kind_ = Kind::kLeaf;
  Py_ssize_t leaf_ = -1;
  PyRef object_;             // the tensor, or the dict
  TensorSnapshot snapshot_;  // kTensor
  std::optional<TensorGuard> guard_;
  PyRef key_;
  Py_ssize_t position_ = -1;  // -1: the value itself
  size_t slot_ = 0;
  bool is_float_ = false;  // kOpen
  at::Tensor number_;      // float64, no dims
};

// Of a sequence of descriptions.
std::vector<InputBinding> input_bindings_from_python(PyObject* descriptions, size_t num_leaves);

}  // namespace hostjit
