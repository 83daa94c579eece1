// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <span>
#include <vector>

#include "bindings/py_ref.h"
#include "bindings/stand_in.h"
#include "bindings/tensor_guard.h"

namespace hostjit {

// Whether a backward pass ends at a tensor: no graph goes on there, and the node that accumulates
// its gradient has no hooks of its own, which are not those of the tensor.
bool is_plain_leaf(const at::Tensor& tensor);

// The tensors of a WatchList, which are no inputs of the program, and their gradients.
class TensorWatches {
 public:
  // A tensor keeps what a TensorGuard sees.
  void add_tensor(PyObject* tensor);
  // A tensor has no gradient; it has one.
  void add_no_gradient(PyObject* tensor);
  void add_has_gradient(PyObject* tensor);
  // A tensor has a gradient like the one that it has now, which is no other tensor of the call: see
  // reaches_gradient.
  void add_gradient(PyObject* tensor);
  // A tensor is a leaf of autograd's graph as is_plain_leaf() says.
  void add_plain_leaf(PyObject* tensor);
  // A tensor is in the same memory, and nobody has written to it since.
  void add_unwritten(PyObject* tensor);

  // Whether another tensor is what is watched of `before` by add_tensor.
  bool fits_in_place(PyObject* before, PyObject* now) const;
  void put_in_place(const StandIn& stand_in);

  bool any() const { return any_; }
  bool hold() const;

  bool any_gradients() const { return !gradients_.empty(); }
  // Whether a gradient of add_gradient is another one of them, or one of these, in ascending order.
  bool reaches_gradient(std::span<const c10::TensorImpl* const> tensors) const;

  // (tensor, whether it has a gradient) of all that are watched for that; see descriptions.cpp.
  pybind11::list describe_gradients() const;

  // For the garbage collector: calls `visit` for every reference held.
  int traverse(visitproc visit, void* arg) const;

 private:
  // The tensor of an entry that is about to be added.
  const at::Tensor& begin_entry(PyObject* tensor, const char* kind);
  struct Tensor {
    PyRef tensor;
    TensorGuard guard;
  };
  struct Unwritten {
    PyRef tensor;
    const void* data;
    uint32_t version;
  };

  std::vector<Tensor> tensors_;
  std::vector<PyRef> without_gradient_;
  std::vector<PyRef> with_gradient_;
  std::vector<PyRef> plain_leaves_;
  std::vector<Tensor> gradients_;  // whose, and what they are like
  std::vector<Unwritten> unwritten_;
  bool any_ = false;
};

}  // namespace hostjit
