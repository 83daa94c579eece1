// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "bindings/py_ref.h"

namespace hostjit {

// What Python objects hold, found without running Python, where CPython's structures have it.

// Where CPython keeps the version of a dict, which every change makes another. Null: nowhere.
const uint64_t* version_of(PyObject* dict);
// Where CPython counts the changes of an OrderedDict's order, which leave the dict's version as it
// is when items move. Null: nowhere that is known.
const uint64_t* moves_of(PyObject* ordered_dict);
// The keys of an OrderedDict in its own order.
PyRef keys_in_order(PyObject* ordered_dict);
// Where a function or a class of Python code keeps an attribute; null where it keeps no such one.
PyObject* const* field_of(PyObject* object, std::string_view name);
// Where an object keeps the value of a member descriptor; null where that is no reference.
PyObject* const* slot_of(PyObject* object, PyObject* member);
// The version that CPython gives a type, at the first look-up through it, and anew at each change;
// the greatest number, which no type has, for a type that gets none.
uint32_t version_of_type(PyTypeObject* type);
// Whether owner.__dict__ is this dict.
bool is_dict_of(PyObject* owner, PyObject* dict);
// owner.__dict__ as a new reference, made if there is none yet; null where it has no such thing.
PyRef dict_of(PyObject* owner);
// Where an object keeps its dict, once it has one. Null: nowhere that stays.
PyObject* const* dict_place_of(PyObject* owner);
// Whether an object has attributes of its own, in its __dict__.
bool has_own_attributes(PyObject* object);
// Whether dict[keys[i]] is expected[i], the very object; `missing` stands for "no such key". Errors
// of a key's own comparison count as a difference.
bool has_items(PyObject* dict, PyObject* keys, PyObject* expected, PyObject* missing);
// Whether a dict has exactly these keys, the very objects, in this order.
bool dict_has_keys(PyObject* dict, PyObject* keys);
// Whether a set or frozenset holds exactly these objects, and gives them in this order.
bool set_is(PyObject* set, PyObject* items);
// Whether an object is a collections.deque, not of a subclass.
bool is_deque(PyObject* object);
// What a list or deque holds, borrowed.
std::vector<PyObject*> items_of(PyObject* list_or_deque);
// The limit of a deque as a new reference, None without one.
PyRef limit_of(PyObject* deque);
// Whether abc.get_cache_token() gives this: another number after each registration.
bool abc_token_is(PyObject* expected);

}  // namespace hostjit
