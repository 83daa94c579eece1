// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <optional>
#include <vector>

namespace hostjit {

// The tensor whose rows are the items of a tuple, all of them, each once and in order: what
// `x.unbind(0)` gives of a plain tensor without gradients. nullopt for a tuple of anything else.
std::optional<at::Tensor> tensor_of_rows(PyObject* tuple);

// New tensors with the elements of the first `count` rows of a contiguous tensor on the CPU.
std::vector<at::Tensor> copies_of_rows(const at::Tensor& rows, int64_t count);

}  // namespace hostjit
