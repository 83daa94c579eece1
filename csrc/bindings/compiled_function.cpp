// SPDX-License-Identifier: Apache-2.0
#include "bindings/compiled_function.h"

#include <pybind11/pybind11.h>
#include <structmember.h>
#include <torch/csrc/Exceptions.h>

#include <memory>

#include "bindings/compiled_method.h"
#include "bindings/function_call.h"
#include "bindings/hidden_frames.h"
#include "bindings/module_method.h"
#include "bindings/py_ref.h"

namespace py = pybind11;

namespace hostjit {
namespace {

// Attributes that the type has, and that are the function's all the same.
struct ForwardedNames {
  PyObject* type = PyUnicode_InternFromString("__class__");
  PyObject* doc = PyUnicode_InternFromString("__doc__");
  PyObject* module = PyUnicode_InternFromString("__module__");
  PyObject* name = PyUnicode_InternFromString("__name__");
};

const ForwardedNames& forwarded_names() {
  static const ForwardedNames kNames;
  return kNames;
}

// 1 if `object` is an nn.Module, 0 if not, -1 with a Python error set.
int is_module(PyObject* object) {
  const PyRef nn = PyRef::steal(PyImport_ImportModule("torch.nn"));
  const PyRef type = nn ? PyRef::steal(PyObject_GetAttrString(nn.get(), "Module")) : PyRef();
  return type ? PyObject_IsInstance(object, type.get()) : -1;
}

// What the owner says of `function`: 1 or 0; -1 with a Python error set.
int is_original(PyObject* owner) {
  const PyRef said = PyRef::steal(PyObject_GetAttrString(owner, "has_original"));
  return said ? PyObject_IsTrue(said.get()) : -1;
}

PyTypeObject* function_type = nullptr;
PyTypeObject* container_type = nullptr;

// Whether the class of `function` is one of containers, or of what is walked like them.
bool holds_others(PyObject* function) {
  const PyTypeObject* type = Py_TYPE(function);
  return type->tp_iter != nullptr ||
         (type->tp_as_mapping != nullptr && (type->tp_as_mapping->mp_length != nullptr ||
                                             type->tp_as_mapping->mp_subscript != nullptr));
}

PyObject* construct(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"function", "owner", "called_by_dynamo", nullptr};
  PyObject* function = nullptr;
  PyObject* owner = nullptr;
  int called_by_dynamo = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$p", const_cast<char**>(names), &function,
                                   &owner, &called_by_dynamo)) {
    return nullptr;
  }
  const int module = is_module(function);
  const int original = module < 0 ? -1 : is_original(owner);
  if (original < 0) return nullptr;
  if (module != 0 && holds_others(function)) type = container_type;
  auto* self = as_compiled(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = called_by_dynamo != 0 ? call_among_frames : call_compiled_function;
  self->function = Py_NewRef(function);
  self->owner = Py_NewRef(owner);
  self->weak_references = nullptr;
  self->attributes = nullptr;
  self->is_module = module != 0;
  self->is_original = original != 0;
  self->specializations = new SpecializationList();
  self->refusals = {};
  return reinterpret_cast<PyObject*>(self);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(as_compiled(object)->function);
  Py_VISIT(as_compiled(object)->owner);
  Py_VISIT(as_compiled(object)->attributes);
  Py_VISIT(Py_TYPE(object));
  return as_compiled(object)->specializations->traverse(visit, arg);
}

int clear(PyObject* object) {
  Py_CLEAR(as_compiled(object)->function);
  Py_CLEAR(as_compiled(object)->owner);
  Py_CLEAR(as_compiled(object)->attributes);
  as_compiled(object)->specializations->clear();
  return 0;
}

void deallocate(PyObject* object) {
  PyObject_GC_UnTrack(object);
  if (as_compiled(object)->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  clear(object);
  delete as_compiled(object)->specializations;
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

bool is_public(PyObject* name) {
  return PyUnicode_GET_LENGTH(name) > 0 && PyUnicode_READ_CHAR(name, 0) != '_';
}

// An attribute that the type lacks: of the owner, if it is one of those that owners show, and else
// of the function. What else an owner has, to work with, hides nothing that a function has.
PyObject* other_attribute(PyObject* owner, PyObject* name) {
  static PyObject* const kAttribute = PyUnicode_InternFromString("other_attribute");
  if (_PyType_Lookup(Py_TYPE(owner), kAttribute) == nullptr) return PyObject_GetAttr(owner, name);
  return PyObject_CallMethodOneArg(owner, kAttribute, name);
}

// Attributes that the type lacks come from the owner and from the function. A compiled
// module says that it is of the module's class, so that other modules take it as a part: without,
// its parameters would be missing among theirs.
PyObject* get_attribute(PyObject* object, PyObject* name) {
  const CompiledFunction* self = as_compiled(object);
  const ForwardedNames& forwarded = forwarded_names();
  if (name == forwarded.name) return other_attribute(self->owner, name);
  if (name == forwarded.doc || name == forwarded.module ||
      (name == forwarded.type && self->is_module)) {
    return PyObject_GetAttr(self->function, name);
  }
  PyObject* found = PyObject_GenericGetAttr(object, name);
  if (found != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  found = other_attribute(self->owner, name);
  if (found == nullptr || !self->is_module || !is_public(name) || !PyMethod_Check(found) ||
      PyMethod_GET_SELF(found) != self->function) {
    return found;
  }
  const PyRef method = PyRef::steal(found);
  return make_module_method(object, method.get());
}

// A module's attributes are set on the module: what is compiled reads them there.
int set_attribute(PyObject* object, PyObject* name, PyObject* value) {
  const CompiledFunction* self = as_compiled(object);
  if (self->is_module) return PyObject_SetAttr(self->function, name, value);
  return PyObject_GenericSetAttr(object, name, value);
}

// A module's names are among those of what is compiled.
PyObject* list_names(PyObject* object, PyObject*) {
  const PyRef own = PyRef::steal(
      PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__dir__", "O", object));
  const PyRef names = own ? PyRef::steal(PySet_New(own.get())) : PyRef();
  if (!names) return nullptr;
  if (as_compiled(object)->is_module) {
    const PyRef others = PyRef::steal(PyObject_Dir(as_compiled(object)->function));
    const PyRef done =
        others ? PyRef::steal(PyObject_CallMethod(names.get(), "update", "O", others.get()))
               : PyRef();
    if (!done) return nullptr;
  }
  return PySequence_List(names.get());
}

PyObject* bind(PyObject* object, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(object);
  return make_compiled_method(object, instance);
}

PyObject* wrapped(PyObject* object) { return as_compiled(object)->function; }

// What `nn.Sequential` and its like are beside modules: the container's answers.
Py_ssize_t length(PyObject* object) { return PyObject_Size(wrapped(object)); }

int truth(PyObject* object) { return PyObject_IsTrue(wrapped(object)); }

PyObject* iterate(PyObject* object) { return PyObject_GetIter(wrapped(object)); }

PyObject* get_item(PyObject* object, PyObject* key) {
  return PyObject_GetItem(wrapped(object), key);
}

// What `reversed` asks.
PyObject* get_item_at(PyObject* object, Py_ssize_t index) {
  return PySequence_GetItem(wrapped(object), index);
}

int set_item(PyObject* object, PyObject* key, PyObject* value) {
  return value == nullptr ? PyObject_DelItem(wrapped(object), key)
                          : PyObject_SetItem(wrapped(object), key, value);
}

int contains(PyObject* object, PyObject* item) {
  return PySequence_Contains(wrapped(object), item);
}

PyObject* represent(PyObject* object) {
  return PyUnicode_FromFormat("hostjit.CompiledFunction(%R)", as_compiled(object)->function);
}

// match(*args, **kwargs): the specialization that would answer this call, or None.
PyObject* match(PyObject* object, PyObject* const* values, Py_ssize_t nargs, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  SpecializationList& list = *as_compiled(object)->specializations;
  const SpecializationList::Use use(list);
  list.skip_no_look();
  Leaves leaves;
  Specialization* found = list.find(GlobalState::current(), values, nargs, kwnames, leaves);
  if (found == nullptr) Py_RETURN_NONE;
  return py::cast(found->shared_from_this()).release().ptr();
  END_HANDLE_TH_ERRORS
}

// add(specialization): the owner's way to let other threads find it before it lets them ask.
PyObject* add(PyObject* object, PyObject* specialization) {
  HANDLE_TH_ERRORS
  auto added = py::handle(specialization).cast<std::shared_ptr<Specialization>>();
  as_compiled(object)->specializations->add(added);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// profile(*args, calls=100, **kwargs): owner.profile of this function.
PyObject* profile(PyObject* object, PyObject* args, PyObject* kwargs) {
  const PyRef method = PyRef::steal(PyObject_GetAttrString(as_compiled(object)->owner, "profile"));
  const PyRef self = PyRef::steal(PyTuple_Pack(1, object));
  if (!method || !self) return nullptr;
  const PyRef all = PyRef::steal(PySequence_Concat(self.get(), args));
  return all ? PyObject_Call(method.get(), all.get(), kwargs) : nullptr;
}

PyObject* forget_gone(PyObject* object, PyObject*) {
  as_compiled(object)->specializations->drop_gone();
  Py_RETURN_NONE;
}

PyObject* forget(PyObject* object, PyObject*) {
  as_compiled(object)->specializations->clear();
  Py_RETURN_NONE;
}

PyObject* is_called_by_dynamo(PyObject* object, void*) {
  return PyBool_FromLong(as_compiled(object)->vectorcall == call_among_frames);
}

PyObject* specializations(PyObject* object, void*) {
  HANDLE_TH_ERRORS
  py::list list;
  for (const auto& specialization : as_compiled(object)->specializations->all()) {
    list.append(py::cast(specialization));
  }
  return list.release().ptr();
  END_HANDLE_TH_ERRORS
}

PyMethodDef methods[] = {
    {"match", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(match)),
     METH_FASTCALL | METH_KEYWORDS,
     "match(*args, **kwargs)\n--\n\nThe specialization that would answer this call, or None."},
    {"add", add, METH_O,
     "add(specialization)\n--\n\nLets calls find a specialization, first of all."},
    {"call_boxed", call_boxed, METH_O,
     "call_boxed(arguments)\n--\n\nA call with the items of a list, which is empty from then on: "
     "tensors that nobody\nelse holds go as soon as the call no longer needs them."},
    {"profile", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(profile)),
     METH_VARARGS | METH_KEYWORDS,
     "profile(*args, calls=100, **kwargs)\n--\n\nMeasures each node of the program that answers "
     "this "
     "call, in so many\ncalls of code that looks at the clock after every node; as many calls of "
     "the "
     "usual\ncode come before, and one more. Returns a Profile: its text is a table."},
    {"forget_gone", forget_gone, METH_NOARGS,
     "forget_gone()\n--\n\nDrops every specialization for an object that is gone."},
    {"__dir__", list_names, METH_NOARGS, nullptr},
    {"forget", forget, METH_NOARGS, "forget()\n--\n\nDrops every specialization."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledFunction, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledFunction, weak_references), READONLY,
     nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(CompiledFunction, attributes), READONLY, nullptr},
    {"__wrapped__", T_OBJECT_EX, offsetof(CompiledFunction, function), READONLY,
     "What was compiled."},
    {"owner", T_OBJECT_EX, offsetof(CompiledFunction, owner), READONLY,
     "The Python side: makes specializations, answers questions about them."},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef computed_members[] = {
    {"specializations", specializations, nullptr, "Most recently used first.", nullptr},
    {"called_by_dynamo", is_called_by_dynamo, nullptr, "Dynamo looks at no frame of its calls.",
     nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A function compiled by hostjit; call it as the original.")},
    {Py_tp_new, reinterpret_cast<void*>(construct)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_getattro, reinterpret_cast<void*>(get_attribute)},
    {Py_tp_setattro, reinterpret_cast<void*>(set_attribute)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
    {Py_tp_repr, reinterpret_cast<void*>(represent)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, computed_members},
    {0, nullptr},
};

PyType_Spec type_spec = {
    "hostjit._C.CompiledFunction",
    sizeof(CompiledFunction),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
        Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE,
    slots,
};

// A type of its own, or all functions would seem to be containers.
PyType_Slot container_slots[] = {
    {Py_tp_doc, const_cast<char*>("A module compiled by hostjit that holds others, as the "
                                  "original does: by number, by name.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_mp_length, reinterpret_cast<void*>(length)},
    {Py_mp_subscript, reinterpret_cast<void*>(get_item)},
    {Py_mp_ass_subscript, reinterpret_cast<void*>(set_item)},
    {Py_sq_length, reinterpret_cast<void*>(length)},
    {Py_sq_item, reinterpret_cast<void*>(get_item_at)},
    {Py_sq_contains, reinterpret_cast<void*>(contains)},
    {Py_tp_iter, reinterpret_cast<void*>(iterate)},
    {Py_nb_bool, reinterpret_cast<void*>(truth)},
    {0, nullptr},
};

PyType_Spec container_spec = {
    "hostjit._C.CompiledContainer",
    sizeof(CompiledFunction),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
        Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE,
    container_slots,
};

PyTypeObject* make_type(PyType_Spec& spec, PyTypeObject* base) {
  const PyRef bases = base == nullptr ? PyRef() : PyRef::steal(PyTuple_Pack(1, base));
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&spec, bases.get()));
}

}  // namespace

bool is_compiled_function(PyObject* object) { return PyObject_TypeCheck(object, function_type); }

bool add_compiled_function_type(PyObject* module) {
  // Never released. There is one class of them, which no Python code may derive from.
  function_type = make_type(type_spec, nullptr);
  if (function_type == nullptr) return false;
  function_type->tp_flags |= Py_TPFLAGS_BASETYPE;
  container_type = make_type(container_spec, function_type);
  function_type->tp_flags &= ~Py_TPFLAGS_BASETYPE;
  return container_type != nullptr && prepare_module_method_type() && prepare_hidden_frames() &&
         PyModule_AddObjectRef(module, "CompiledFunction",
                               reinterpret_cast<PyObject*>(function_type)) == 0 &&
         PyModule_AddObjectRef(module, "CompiledContainer",
                               reinterpret_cast<PyObject*>(container_type)) == 0;
}

}  // namespace hostjit
