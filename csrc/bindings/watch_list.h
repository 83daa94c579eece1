// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/py_ref.h"
#include "bindings/stand_in.h"
#include "bindings/tensor_watches.h"

namespace hostjit {

// What a capture assumed about Python state outside of the arguments, checked at every call in a
// few nanoseconds per entry and without running Python. An entry that fails does not say that the
// program is wrong, only that its owner has to look again.
//
// Dicts and types are compared by the version that CPython gives them at each change. Where it
// keeps no version of dicts (3.14 and later; 3.13 for the attributes of most objects), or one that
// may be less than an earlier one (without the GIL), a dict that is watched whole never holds.
class WatchList {
 public:
  // `unheld`: objects that are not held where they are watched. The owner asks whether something
  // holds only after it has seen that they are alive.
  explicit WatchList(std::vector<PyObject*> unheld) : unheld_(std::move(unheld)) {}

  // Nothing changes in the dict, nor in the order of an OrderedDict. When `owner` is not null,
  // owner.__dict__ is still this dict.
  void add_dict(PyObject* dict, PyObject* owner);
  // dict[keys[i]] is expected[i], the very object; `missing` expects no such key. Other keys are
  // free to change.
  void add_dict_items(PyObject* dict, PyObject* owner, PyObject* keys, PyObject* expected,
                      PyObject* missing);
  // The closure cell holds this object; null: it is empty.
  void add_cell(PyObject* cell, PyObject* expected);
  // A dict has exactly these keys, the very objects, in this order; for an OrderedDict it is its
  // own.
  void add_dict_keys(PyObject* dict, PyObject* keys);
  // A list or deque holds exactly these objects; `any` among them stands for whatever is there.
  void add_list(PyObject* list, PyObject* items, PyObject* any);
  // A set or frozenset holds exactly these objects, in this order.
  void add_set(PyObject* set, PyObject* items);
  // Nothing changes in a class or its bases.
  void add_type(PyObject* type);
  // Nothing changes in a class or its bases but what a dict, from classes to tuples of names, says:
  // these attributes may have other values.
  void add_type_but(PyObject* type, PyObject* open);
  // An object is of exactly this type.
  void add_object_type(PyObject* object, PyObject* type);
  // A function has these __code__, __defaults__ and __kwdefaults__ (null for None).
  void add_function(PyObject* function, PyObject* code, PyObject* defaults, PyObject* kwdefaults);
  // Attributes of a function or a class which no dict has are these very objects, now: __name__,
  // __qualname__, and of functions __doc__, __module__ and __annotations__.
  void add_fields(PyObject* object, PyObject* names);
  // Slots of an object, given by their member descriptors, hold these very objects or nothing, now.
  void add_slots(PyObject* object, PyObject* members);
  // A tensor has these dicts of hooks, now, or none: what register_hook and
  // register_post_accumulate_grad_hook put there. What is in them is watched by itself.
  void add_hooks(PyObject* tensor);
  // Backward passes are neither looked at (anomaly mode) nor given what hooks make of saved
  // tensors.
  void add_plain_backward();
  // No class was registered with an abstract class: abc.get_cache_token() gives `token`.
  void add_abc_token(PyObject* token);

  // Tensors that are no inputs, and their gradients.
  const TensorWatches& tensors() const { return tensors_; }
  TensorWatches& tensors() { return tensors_; }

  // Compares a few words of memory per entry; looks closer only where one differs.
  bool holds() {
    uint64_t versions = 0;
#pragma GCC unroll 8
    for (const uint64_t* version : versions_) versions += *version >> kVersionShift;
    uint64_t difference = versions ^ sum_of_versions_;  // no branch per word: the loads overlap
#pragma GCC unroll 8
    for (const Word& word : words_) difference |= *word.address ^ word.expected;
    for (const HalfWord& word : half_words_) difference |= *word.address ^ word.expected;
    if (difference != 0) [[unlikely]]
      return holds_on_a_closer_look();
    return !(has_others_ || tensors_.any()) || others_hold();
  }

  // Whether what watched cells, dicts and lists have may be taken for what is expected. Asked about
  // each value that differs.
  using Fits = std::function<bool(PyObject* expected, PyObject* found)>;
  enum class Fit : uint8_t { kYes, kNo, kOtherLength };
  // Of all cells, dicts, lists and slots of objects for which `is_asked`: asked about an object for
  // its dict.
  Fit all_fit(const std::function<bool(PyObject* holder)>& is_asked, const Fits& fits) const;
  // Of another dict or list, or of the slots of another object, for what is expected of `before`.
  Fit contents_fit(PyObject* before, PyObject* now, const Fits& fits) const;
  // The same of slots and other fields alone.
  bool fields_fit(PyObject* before, PyObject* now, const Fits& fits) const;
  // The dict of an object, if it is watched as that, borrowed; else null.
  PyObject* dict_of_owner(PyObject* owner) const;
  // Watches what stands in for objects, dicts, lists and tensors; all of it fits.
  void put_in_place(const StandIn& stand_in);
  // Expects what watched cells, dicts and lists have, all of which fits; whether all else holds.
  bool holds_from_now_on();

  // The dicts, lists and deques that are watched or found in what is, borrowed, in ascending order.
  std::vector<PyObject*> containers() const;
  // Whether an object is watched that is none of these.
  bool knows_object(PyObject* object) const;

  // For the garbage collector: calls `visit` for every reference held.
  int traverse(visitproc visit, void* arg) const;

 private:
  // 64 bits inside of an object that an entry holds a reference to. While they are as expected,
  // that part of the entry holds.
  struct Word {
    const uint64_t* address;
    uint64_t expected;
  };
  struct HalfWord {
    const uint32_t* address;
    uint32_t expected;
  };
  // An object that is watched, held unless it is to be alive by itself.
  class Watched {
   public:
    Watched() = default;
    Watched(PyObject* object, bool is_held)
        : object_(object), reference_(is_held ? PyRef::share(object) : PyRef()) {}
    PyObject* get() const { return object_; }
    PyObject* held() const { return reference_.get(); }
    explicit operator bool() const { return object_ != nullptr; }

   private:
    PyObject* object_ = nullptr;
    PyRef reference_;
  };
  struct Dict {
    Watched dict;
    Watched owner;
    PyRef keys;  // null: the whole dict
    PyRef expected;
    PyRef missing;
    uint64_t version;                 // when it last held
    Py_ssize_t size = -1;             // -1: any
    const uint64_t* moves = nullptr;  // where they are counted; null: not watched
    uint64_t num_moves = 0;
    std::optional<size_t> place{};  // of its version among versions_
    bool holds();
    // What another dict has for the keys, `missing` for those that it doesn't have.
    std::vector<PyObject*> values_in(PyObject* other) const;
  };
  struct Pair {
    Watched object;
    PyRef expected;
  };
  struct List {
    Watched object;
    PyRef expected;
    PyRef any;  // null: none
    bool holds() const;
    // What another list has, `any` where that is expected.
    std::vector<PyObject*> items_in(PyObject* other) const;
  };
  struct Function {
    PyRef function;
    PyRef code;
    PyRef defaults;
    PyRef kwdefaults;
  };
  struct Field {
    Watched object;
    PyObject* const* address;  // in the object
    PyRef expected;
  };

  // CPython 3.12 and 3.13 keep a dict's watchers in the lowest bits of its version, which come and
  // go (DICT_MAX_WATCHERS). What 3.13 counts in the four bits above them only grows, too.
  static constexpr unsigned kVersionShift = PY_VERSION_HEX < 0x030C0000 ? 0U : 8U;

  static const Word kNever;
  Watched watched(PyObject* object) const {
    return {object, std::ranges::find(unheld_, object) == unheld_.end()};
  }
  void watch_pointer(PyObject* const* address, PyObject* expected);
  // For a place that is watched: another one from now on, or the same.
  void watch_instead(PyObject* const* address, PyObject* const* now, PyObject* expected);
  void add_dict_entry(Dict entry, bool unchanged);
  void add_class_items(PyObject* type, PyObject* open);
  bool holds_on_a_closer_look();
  // Whether something, or nothing, is found where something, or nothing, was expected.
  static bool may_hold(PyObject* expected, PyObject* found, const Fits& fits);
  static Fit fit(PyObject* expected, const std::vector<PyObject*>& found, const Fits& fits);
  bool dicts_hold();
  // Tensors, lists, sets, keys of dicts, the token of abstract classes, and modes of backward
  // passes.
  bool others_hold() const;

  std::vector<PyObject*> unheld_;
  // Where dicts keep their versions. A change makes a version greater than any before: while the
  // sum is the same, all of them are.
  std::vector<const uint64_t*> versions_;
  uint64_t sum_of_versions_ = 0;
  std::vector<Word> words_;
  std::vector<HalfWord> half_words_;
  std::vector<Dict> dicts_;
  std::vector<Pair> cells_;
  std::vector<List> lists_;
  std::vector<Pair> sets_;
  std::vector<Pair> dict_keys_;
  std::vector<PyRef> types_;
  std::vector<Pair> object_types_;
  std::vector<Pair> bases_;  // a class and its __mro__
  std::vector<Function> functions_;
  std::vector<Field> fields_;
  TensorWatches tensors_;
  PyRef abc_token_;  // null: not watched
  bool plain_backward_ = false;
  bool has_others_ = false;
};

// Entries are tuples of a kind and the arguments of the WatchList::add_* function of that name.
// `unheld` as of WatchList. Throws Error for an unknown kind.
WatchList watches_from_python(PyObject* entries, std::vector<PyObject*> unheld);

}  // namespace hostjit
