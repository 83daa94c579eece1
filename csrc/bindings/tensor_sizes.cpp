// SPDX-License-Identifier: Apache-2.0
#include "bindings/tensor_sizes.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace hostjit {
namespace {

bool takes(const char* name, Py_ssize_t nargs, Py_ssize_t wanted) {
  if (nargs == wanted) return true;
  PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, got %zd", name, wanted, nargs);
  return false;
}

// Whether `object` has its sizes from nowhere else: no subclass does.
bool is_plain(PyObject* object) { return THPVariable_CheckExact(object); }

// What `read` tells of a dim: `function` of two arguments, which is a `method` of subclasses.
PyObject* of_dim(const char* function, const char* method, PyObject* const* values,
                 Py_ssize_t nargs, int64_t (*read)(const at::Tensor&, int64_t)) {
  HANDLE_TH_ERRORS
  if (!takes(function, nargs, 2)) return nullptr;
  if (!is_plain(values[0])) return PyObject_CallMethod(values[0], method, "O", values[1]);
  const Py_ssize_t dim = PyLong_AsSsize_t(values[1]);
  if (dim == -1 && PyErr_Occurred()) return nullptr;
  return PyLong_FromLongLong(read(THPVariable_Unpack(values[0]), dim));
  END_HANDLE_TH_ERRORS
}

PyObject* call_size(PyObject*, PyObject* const* values, Py_ssize_t nargs) {
  return of_dim("call_size", "size", values, nargs,
                [](const at::Tensor& tensor, int64_t dim) { return tensor.size(dim); });
}

PyObject* call_stride(PyObject*, PyObject* const* values, Py_ssize_t nargs) {
  return of_dim("call_stride", "stride", values, nargs,
                [](const at::Tensor& tensor, int64_t dim) { return tensor.stride(dim); });
}

PyObject* call_storage_offset(PyObject*, PyObject* tensor) {
  HANDLE_TH_ERRORS
  if (!is_plain(tensor)) return PyObject_CallMethod(tensor, "storage_offset", nullptr);
  return PyLong_FromLongLong(THPVariable_Unpack(tensor).storage_offset());
  END_HANDLE_TH_ERRORS
}

PyMethodDef functions[] = {
    {"call_size", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_size)),
     METH_FASTCALL, "call_size(tensor, dim)\n--\n\nThe size of a dim."},
    {"call_stride", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_stride)),
     METH_FASTCALL, "call_stride(tensor, dim)\n--\n\nThe stride of a dim, in elements."},
    {"call_storage_offset", call_storage_offset, METH_O,
     "call_storage_offset(tensor)\n--\n\nWhere in its storage a tensor begins, in elements."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_tensor_sizes(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace hostjit
