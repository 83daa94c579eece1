// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace hostjit {

// Adds the functions that code of Dynamo's calls for the sizes of a tensor, in C: those of
// `torch._dynamo.utils` are three Python functions each. False with a Python error set on failure.
//
//   call_size(tensor, dim), call_stride(tensor, dim), call_storage_offset(tensor)
bool add_tensor_sizes(PyObject* module);

}  // namespace hostjit
