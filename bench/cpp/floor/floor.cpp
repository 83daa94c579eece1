// SPDX-License-Identifier: Apache-2.0
#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include <structmember.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <vector>

#include "forward.h"

// The Python module hostjit_floor: two models as functions written by hand for their shapes, called
// as hostjit's are, through vectorcall. They check no more than that the argument is a tensor of
// the right shape, read weights that were packed once, and make one tensor.

namespace {

using Forward = void (*)(const float* packed, const float* x, float* y);

struct Model {
  std::string_view name;
  Forward forward;
  int64_t inputs;
  int64_t outputs;
  // The floats of each parameter, in the order of the module's parameters.
  std::vector<int64_t> parameters;
};

struct Floor {
  PyObject_HEAD vectorcallfunc vectorcall;
  const Model* model;
  float* packed;
};

const Model kModels[] = {
    {"policy_b1", policy_forward, 32, 8, {64 * 32, 64, 64 * 64, 64, 8 * 64, 8}},
    {"chain32", chain_forward, 16, 16, {16 * 16}},
};

PyObject* call(PyObject* object, PyObject* const* values, size_t nargsf, PyObject* names) {
  const auto* self = reinterpret_cast<Floor*>(object);
  const Model& model = *self->model;
  if (PyVectorcall_NARGS(nargsf) != 1 || names != nullptr || !THPVariable_CheckExact(values[0])) {
    return PyErr_Format(PyExc_TypeError, "expected one tensor");
  }
  const at::Tensor& x = THPVariable_Unpack(values[0]);
  if (x.scalar_type() != at::kFloat || x.dim() != 2 || x.size(0) != 1 ||
      x.size(1) != model.inputs || x.stride(1) != 1) {
    return PyErr_Format(PyExc_TypeError, "expected [1, %zd] floats", model.inputs);
  }
  at::TensorBase y = at::detail::empty_cpu({1, model.outputs}, at::kFloat);
  model.forward(self->packed, static_cast<const float*>(x.const_data_ptr()),
                static_cast<float*>(y.mutable_data_ptr()));
  return THPVariable_Wrap(std::move(y));
}

// Linear weights are stored by output; the products read them by input.
void pack(const Model& model, PyObject* parameters, float* packed) {
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    at::Tensor tensor = THPVariable_Unpack(PyTuple_GET_ITEM(parameters, i)).detach();
    if (model.forward == policy_forward && tensor.dim() == 2) tensor = tensor.t();
    tensor = tensor.contiguous();
    const auto* values = static_cast<const float*>(tensor.const_data_ptr());
    packed = std::copy(values, values + model.parameters[i], packed);
  }
}

PyObject* construct(PyTypeObject* type, PyObject* args, PyObject*) {
  const char* name = nullptr;
  PyObject* parameters = nullptr;
  if (!PyArg_ParseTuple(args, "sO!", &name, &PyTuple_Type, &parameters)) return nullptr;
  for (const Model& model : kModels) {
    if (model.name != name) continue;
    int64_t total = 0;
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      PyObject* item = PyTuple_GetItem(parameters, static_cast<Py_ssize_t>(i));
      if (item == nullptr || !THPVariable_Check(item) ||
          THPVariable_Unpack(item).numel() != model.parameters[i]) {
        return PyErr_Format(PyExc_TypeError, "parameter %zu does not fit", i);
      }
      total += model.parameters[i];
    }
    auto* self = reinterpret_cast<Floor*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->vectorcall = call;
    self->model = &model;
    self->packed = static_cast<float*>(::operator new(total * sizeof(float), std::align_val_t{64}));
    pack(model, parameters, self->packed);
    return reinterpret_cast<PyObject*>(self);
  }
  return PyErr_Format(PyExc_KeyError, "no function was written for '%s'", name);
}

void deallocate(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  ::operator delete(reinterpret_cast<Floor*>(object)->packed, std::align_val_t{64});
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef kMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Floor, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot kSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(construct)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_members, kMembers},
    {0, nullptr},
};
PyType_Spec kSpec = {"hostjit_floor.Floor", sizeof(Floor), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, kSlots};
PyModuleDef kModule = {PyModuleDef_HEAD_INIT,
                       "hostjit_floor",
                       nullptr,
                       -1,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_hostjit_floor() {
  PyObject* module = PyModule_Create(&kModule);
  PyObject* type = PyType_FromSpec(&kSpec);
  if (module == nullptr || type == nullptr || PyModule_AddObject(module, "Floor", type) < 0) {
    return nullptr;
  }
  return module;
}
