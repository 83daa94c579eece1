// SPDX-License-Identifier: Apache-2.0
#include "bindings/class_check.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/object_state.h"
#include "bindings/py_ref.h"
#include "support/check.h"

namespace py = pybind11;

namespace hostjit {
namespace {

bool is_alive(const PyRef& reference) {
  return reinterpret_cast<PyWeakReference*>(reference.get())->wr_object != Py_None;
}

PyRef refer_to(py::handle object) {
  PyRef reference = PyRef::steal(PyWeakref_NewRef(object.ptr(), nullptr));
  if (!reference) throw py::error_already_set();
  return reference;
}

class ClassCheck {
 public:
  ClassCheck(const py::iterable& classes, const py::iterable& functions, py::function look,
             py::object abc_token)
      : look_(std::move(look)), abc_token_(std::move(abc_token)) {
    for (const py::handle object : classes) {
      HOSTJIT_ICHECK(PyType_Check(object.ptr()), "a class is a ", Py_TYPE(object.ptr())->tp_name);
      auto* type = reinterpret_cast<PyTypeObject*>(object.ptr());
      classes_.push_back({refer_to(object), type, version_of_type(type)});
    }
    for (const py::handle object : functions) {
      HOSTJIT_ICHECK(PyFunction_Check(object.ptr()), "a function is a ",
                     Py_TYPE(object.ptr())->tp_name);
      auto* function = reinterpret_cast<PyFunctionObject*>(object.ptr());
      functions_.push_back({refer_to(object), function, PyRef::share(function->func_code),
                            PyRef::share(function->func_defaults),
                            PyRef::share(function->func_kwdefaults)});
    }
  }

  // Throws py::error_already_set for what `look` raises.
  bool holds() {
    for (Class& entry : classes_) {
      if (!is_alive(entry.reference)) return false;
      if (entry.type->tp_version_tag != entry.version && !still_holds(entry)) return false;
    }
    for (const Function& entry : functions_) {
      if (!is_alive(entry.reference) || entry.function->func_code != entry.code.get() ||
          entry.function->func_defaults != entry.defaults.get() ||
          entry.function->func_kwdefaults != entry.kwdefaults.get()) {
        return false;
      }
    }
    return abc_token_.is_none() || abc_token_is(abc_token_.ptr());
  }

 private:
  struct Class {
    PyRef reference;
    PyTypeObject* type;
    uint32_t version;
  };
  struct Function {
    PyRef reference;
    PyFunctionObject* function;
    PyRef code;
    PyRef defaults;
    PyRef kwdefaults;
  };

  bool still_holds(Class& entry) {
    const py::object kind =
        py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(entry.type));
    if (!look_(kind).cast<bool>()) return false;
    entry.version = version_of_type(entry.type);
    return true;
  }

  std::vector<Class> classes_;
  std::vector<Function> functions_;
  py::function look_;
  py::object abc_token_;
};

PyObject* call(PyObject* capsule, PyObject*) {
  auto* check = static_cast<ClassCheck*>(PyCapsule_GetPointer(capsule, nullptr));
  try {
    return PyBool_FromLong(check->holds() ? 1 : 0);
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

PyMethodDef method{"class_check", call, METH_O, nullptr};

}  // namespace

py::object make_class_check(const py::iterable& classes, const py::iterable& functions,
                            py::function look, py::object abc_token) {
  auto check =
      std::make_unique<ClassCheck>(classes, functions, std::move(look), std::move(abc_token));
  const py::capsule owner(check.release(),
                          [](void* pointer) { delete static_cast<ClassCheck*>(pointer); });
  return py::reinterpret_steal<py::object>(PyCFunction_NewEx(&method, owner.ptr(), nullptr));
}

}  // namespace hostjit
