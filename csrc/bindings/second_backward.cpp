// SPDX-License-Identifier: Apache-2.0
#include "bindings/second_backward.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/python_variable.h>

#include <bit>

#include "bindings/autograd_node.h"
#include "support/check.h"

namespace py = pybind11;

namespace hostjit {
namespace {

// None for an undefined one.
py::object to_python(const at::Tensor& tensor) {
  PyObject* wrapped = THPVariable_Wrap(tensor);
  if (wrapped == nullptr) throw python_error();
  return py::reinterpret_steal<py::object>(wrapped);
}

py::list to_python(const std::vector<at::Tensor>& tensors) {
  py::list list;
  for (const at::Tensor& tensor : tensors) list.append(to_python(tensor));
  return list;
}

py::object number_to_python(const BackwardPlan& plan, size_t number, int64_t bits) {
  if (plan.number_is_float[number]) return py::float_(std::bit_cast<double>(bits));
  return py::int_(bits);
}

}  // namespace

std::vector<at::Tensor> gradients_again(const BackwardPlan& plan,
                                        const std::vector<at::Tensor>& inputs,
                                        const std::vector<int64_t>& numbers,
                                        const std::vector<at::Tensor>& tangents,
                                        const at::Tensor& state) {
  const py::gil_scoped_acquire gil;
  py::list values = to_python(inputs);
  for (size_t i = 0; i < numbers.size(); ++i) {
    values[plan.numbers[i]] = number_to_python(plan, i, numbers[i]);
  }
  const auto found = py::reinterpret_steal<py::object>(PyObject_CallFunctionObjArgs(
      plan.again.get(), values.ptr(), to_python(tangents).ptr(), to_python(state).ptr(), nullptr));
  if (!found) {
    python_error error;
    error.persist();
    throw std::move(error);
  }
  std::vector<at::Tensor> gradients;
  for (const py::handle gradient : found) {
    gradients.push_back(gradient.is_none() ? at::Tensor() : THPVariable_Unpack(gradient.ptr()));
  }
  HOSTJIT_CHECK(gradients.size() == inputs.size(), "backward: ", gradients.size(),
                " gradients for ", inputs.size(), " inputs");
  return gradients;
}

std::vector<at::Tensor> without_second_derivatives(const BackwardPlan& plan,
                                                   torch::autograd::edge_list edges,
                                                   std::vector<at::Tensor> gradients) {
  const auto error = make_node<torch::autograd::Error>(
      "hostjit: second derivatives of '" + plan.name +
          "' are not possible: its forward changes tensors that are large or need gradients, or "
          "draws random numbers on another device or by an operator of another library, so that it "
          "cannot be run again. Call the original function where you need them",
      std::move(edges));
  for (at::Tensor& gradient : gradients) {
    if (!gradient.defined() || !torch::autograd::isDifferentiableType(gradient.scalar_type()))
      continue;
    torch::autograd::create_gradient_edge(gradient, error);
  }
  return gradients;
}

}  // namespace hostjit
