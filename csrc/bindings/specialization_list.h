// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "bindings/specialization.h"

namespace hostjit {

// The specializations of one compiled function, the most recently used first; behind the others
// those that take any arguments. Used under the GIL.
class SpecializationList {
 public:
  // Keeps what find() returned alive, for the time of a call. Counts under the GIL, where a
  // shared_ptr per call would count atomically.
  class Use {
   public:
    explicit Use(SpecializationList& list) : list_(list) { ++list_.uses_; }
    ~Use() {
      if (--list_.uses_ == 0 && !list_.dropped_.empty()) [[unlikely]]
        list_.release_dropped();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    SpecializationList& list_;
  };

  // The first one that matches, moved to the front; null if there is none. Needs a Use. May run
  // Python, which may change the list.
  Specialization* find(const GlobalState& state, PyObject* const* values, Py_ssize_t nargs,
                       PyObject* kwnames, Leaves& leaves) {
    if (all_.empty()) return nullptr;
    Specialization* first = all_.front().get();
    if (first->match(state, values, nargs, kwnames, leaves)) [[likely]]
      return first;
    return find_behind_first(state, values, nargs, kwnames, leaves);
  }
  // Has the next find() look at all that has changed, see Specialization::skip_no_look.
  void skip_no_look() {
    for (const auto& each : all_) each->skip_no_look();
  }
  // Unless it is there already.
  void add(const std::shared_ptr<Specialization>& specialization);
  // Drops all; those of calls under way when the last of these ends.
  void clear();
  // Drops those for objects that are gone.
  void drop_gone();

  const std::vector<std::shared_ptr<Specialization>>& all() const { return all_; }

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const;

 private:
  Specialization* find_behind_first(const GlobalState& state, PyObject* const* values,
                                    Py_ssize_t nargs, PyObject* kwnames, Leaves& leaves);
  // Those of calls under way go later.
  void release(std::vector<std::shared_ptr<Specialization>> dropped);
  void release_dropped();

  std::vector<std::shared_ptr<Specialization>> all_;
  std::vector<std::shared_ptr<Specialization>> dropped_;
  Py_ssize_t uses_ = 0;
};

}  // namespace hostjit
