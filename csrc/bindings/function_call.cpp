// SPDX-License-Identifier: Apache-2.0
#include "bindings/function_call.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <exception>
#include <memory>

#include "bindings/hidden_frames.h"
#include "bindings/program_call.h"
#include "bindings/py_ref.h"
#include "bindings/python_error.h"
#include "support/check.h"
#include "support/knobs.h"

namespace py = pybind11;

namespace hostjit {
namespace {

PyObject* run_eagerly(CompiledFunction* self, PyObject* const* values, Py_ssize_t nargs,
                      PyObject* kwnames) {
  return PyObject_Vectorcall(self->function, values, nargs, kwnames);
}

// Whether the function itself is to run where the program fails.
bool may_retry(const CompiledFunction* self, const Specialization& specialization) {
  return specialization.retries() || (specialization.fails_early() && self->is_original);
}

// Runs what answers a call in Python. Where its program fails, nothing is changed yet: the function
// changes what it does up to there, raises the same, or handles it.
PyObject* run_route(CompiledFunction* self, Specialization& specialization, PyObject* const* values,
                    Py_ssize_t nargs, PyObject* kwnames) {
  const uint64_t before = ProgramCall::num_failed();
  PyObject* result = PyObject_Vectorcall(specialization.route(), values, nargs, kwnames);
  if (result || !specialization.retries() || ProgramCall::num_failed() == before) return result;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
  PyErr_Clear();
  return run_eagerly(self, values, nargs, kwnames);
}

// Runs one whose calls return or store numbers. Eager has the last word where Python can't compute
// these, and where the call fails: what it leaves behind then depends on where it does.
PyObject* run_with_numbers(CompiledFunction* self, Specialization& specialization, Leaves& leaves,
                           PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames) {
  if (!specialization.compute(leaves)) {
    PyErr_Clear();
    return run_eagerly(self, values, nargs, kwnames);
  }
  if (specialization.route()) {
    PyRef result = PyRef::steal(run_route(self, specialization, values, nargs, kwnames));
    return result && specialization.store(leaves) ? result.release() : nullptr;
  }
  PyRef result = PyRef::steal(specialization.run(leaves));
  if (result) return specialization.store(leaves) ? result.release() : nullptr;
  if (!may_retry(self, specialization) || !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
  PyErr_Clear();
  return run_eagerly(self, values, nargs, kwnames);
}

// Runs a program that has no effect; where it fails, the function, which may handle that, and which
// leaves behind what it wrote before.
[[gnu::noinline]] PyObject* run_or_retry(CompiledFunction* self, Specialization& specialization,
                                         const Leaves& leaves, PyObject* const* values,
                                         Py_ssize_t nargs, PyObject* kwnames) {
  try {
    if (PyObject* result = specialization.run(leaves)) return result;
  } catch (const std::exception&) {
    PyErr_Clear();  // the function raises it again, or handles it
  }
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
  PyErr_Clear();
  return run_eagerly(self, values, nargs, kwnames);
}

// `given_up`: the references to the arguments, of a call that gives them up; else null.
PyObject* run_specialization(CompiledFunction* self, Specialization& specialization, Leaves& leaves,
                             PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames,
                             HeldArguments* given_up) {
  if (given_up != nullptr && specialization.donates()) {
    return specialization.run_donating(leaves, *given_up);
  }
  if (specialization.updates() && self->is_original && !specialization.may_update(leaves))
      [[unlikely]] {
    return run_eagerly(self, values, nargs, kwnames);  // which raises, or writes unseen by autograd
  }
  if (specialization.makes_numbers()) [[unlikely]] {
    return run_with_numbers(self, specialization, leaves, values, nargs, kwnames);
  }
  if (specialization.route()) return run_route(self, specialization, values, nargs, kwnames);
  if (may_retry(self, specialization)) [[unlikely]]
    return run_or_retry(self, specialization, leaves, values, nargs, kwnames);
  return specialization.run(leaves);
}

// What the owner makes for a call, see miss(); null with a Python error set.
PyRef ask_owner(CompiledFunction* self, PyObject* const* values, Py_ssize_t nargs,
                PyObject* kwnames) {
  const PyRef args = PyRef::steal(PyTuple_New(nargs));
  const PyRef kwargs = PyRef::steal(PyDict_New());
  if (!args || !kwargs) return {};
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(args.get(), i, Py_NewRef(values[i]));
  const Py_ssize_t num_names = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < num_names; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    if (PyDict_SetItem(kwargs.get(), name, values[nargs + i]) < 0) return {};
  }
  return PyRef::steal(
      PyObject_CallMethod(self->owner, "specialize", "OOO", self, args.get(), kwargs.get()));
}

// Asks the owner for a specialization and runs it, or the function itself. An owner that has run
// the call itself gives a tuple: a specialization for later calls, or None, and the result.
PyObject* miss(CompiledFunction* self, const GlobalState& state, PyObject* const* values,
               Py_ssize_t nargs, PyObject* kwnames, HeldArguments* given_up) {
  if (!self->refusals.may_ask()) return run_eagerly(self, values, nargs, kwnames);
  const PyRef made = ask_owner(self, values, nargs, kwnames);
  if (!made) return nullptr;
  if (made.get() == Py_None) {
    self->refusals.note();
    return run_eagerly(self, values, nargs, kwnames);
  }
  self->refusals.forget();
  if (PyTuple_CheckExact(made.get())) {
    HOSTJIT_CHECK(PyTuple_GET_SIZE(made.get()) == 2, "an answer has ", PyTuple_GET_SIZE(made.get()),
                  " items, expected a specialization and a result");
    const py::handle later = PyTuple_GET_ITEM(made.get(), 0);
    if (!later.is_none()) {
      self->specializations->add(later.cast<std::shared_ptr<Specialization>>());
    }
    return Py_NewRef(PyTuple_GET_ITEM(made.get(), 1));
  }
  auto specialization = py::handle(made.get()).cast<std::shared_ptr<Specialization>>();
  self->specializations->add(specialization);
  Leaves leaves;
  // The capture may itself have moved a version that it assumed; a specialization that does not
  // match the very call it was made for answers nothing.
  if (!specialization->match(state, values, nargs, kwnames, leaves)) {
    return run_eagerly(self, values, nargs, kwnames);
  }
  return run_specialization(self, *specialization, leaves, values, nargs, kwnames, given_up);
}

bool is_off(const CompiledFunction* self) { return !compile_enabled() && self->is_original; }

[[gnu::always_inline]] inline PyObject* call_unchecked(CompiledFunction* self,
                                                       PyObject* const* values, Py_ssize_t nargs,
                                                       PyObject* kwnames, HeldArguments* given_up) {
  const GlobalState state = GlobalState::current();
  if (state.belongs_to_mode() || self->refusals.skip() || is_off(self)) [[unlikely]] {
    return run_eagerly(self, values, nargs, kwnames);
  }
  const SpecializationList::Use use(*self->specializations);
  Leaves leaves;
  if (Specialization* found = self->specializations->find(state, values, nargs, kwnames, leaves))
      [[likely]] {
    return run_specialization(self, *found, leaves, values, nargs, kwnames, given_up);
  }
  return miss(self, state, values, nargs, kwnames, given_up);
}

// The Python error that PyTorch sets for the C++ exception being handled.
[[gnu::cold]] PyObject* set_error_of_current_exception() {
  HANDLE_TH_ERRORS
  try {
    throw;
  } catch (const Error& error) {
    set_python_error(error);
    return nullptr;
  }
  END_HANDLE_TH_ERRORS
}

}  // namespace

// HANDLE_TH_ERRORS around every call would cost a handler for warnings; what may warn has its own.
PyObject* call_compiled_function(PyObject* object, PyObject* const* values, size_t nargsf,
                                 PyObject* kwnames) {
  try {
    return call_unchecked(as_compiled(object), values, PyVectorcall_NARGS(nargsf), kwnames,
                          /*given_up=*/nullptr);
  } catch (...) {
    return set_error_of_current_exception();
  }
}

PyObject* call_among_frames(PyObject* object, PyObject* const* values, size_t nargsf,
                            PyObject* kwnames) {
  const HiddenFrames hidden;
  return call_compiled_function(object, values, nargsf, kwnames);
}

PyObject* call_boxed(PyObject* object, PyObject* list) {
  if (!PyList_CheckExact(list)) {
    PyErr_Format(PyExc_TypeError, "call_boxed() takes a list, got %s", Py_TYPE(list)->tp_name);
    return nullptr;
  }
  HeldArguments held;
  c10::SmallVector<PyObject*, 16> values;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    values.push_back(PyList_GET_ITEM(list, i));
    held.push_back(PyRef::share(values.back()));
  }
  if (PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr) < 0) return nullptr;
  try {
    return call_unchecked(as_compiled(object), values.data(),
                          static_cast<Py_ssize_t>(values.size()), /*kwnames=*/nullptr, &held);
  } catch (...) {
    return set_error_of_current_exception();
  }
}

}  // namespace hostjit
