// SPDX-License-Identifier: Apache-2.0
#include "bindings/specialization_list.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hostjit {

Specialization* SpecializationList::find_behind_first(const GlobalState& state,
                                                      PyObject* const* values, Py_ssize_t nargs,
                                                      PyObject* kwnames, Leaves& leaves) {
  // By index: looking again after a failed watch may run Python that changes the list.
  for (size_t i = 1; i < all_.size(); ++i) {
    Specialization* candidate = all_[i].get();
    if (!candidate->match(state, values, nargs, kwnames, leaves)) continue;
    if (i < all_.size() && all_[i].get() == candidate && !candidate->any_arguments()) {
      std::rotate(all_.begin(), all_.begin() + i, all_.begin() + i + 1);
    }
    return candidate;
  }
  return nullptr;
}

void SpecializationList::add(const std::shared_ptr<Specialization>& specialization) {
  if (std::ranges::find(all_, specialization) != all_.end()) return;
  all_.insert(specialization->any_arguments() ? all_.end() : all_.begin(), specialization);
}

void SpecializationList::clear() {
  // Moved out first: what dies with them may run Python, which may come back here.
  release(std::exchange(all_, {}));
}

void SpecializationList::drop_gone() {
  const auto gone = std::ranges::stable_partition(
      all_, &Specialization::has_its_objects,
      [](const auto& each) -> const Specialization& { return *each; });
  std::vector<std::shared_ptr<Specialization>> dropped(std::make_move_iterator(gone.begin()),
                                                       std::make_move_iterator(gone.end()));
  all_.erase(gone.begin(), gone.end());
  release(std::move(dropped));
}

void SpecializationList::release(std::vector<std::shared_ptr<Specialization>> dropped) {
  if (uses_ > 0) std::ranges::move(dropped, std::back_inserter(dropped_));
}

void SpecializationList::release_dropped() {
  const std::vector<std::shared_ptr<Specialization>> dropped = std::exchange(dropped_, {});
}

int SpecializationList::traverse(visitproc visit, void* arg) const {
  for (const auto& specialization : all_) {
    // References of a specialization that someone else holds too are not this object's alone.
    if (specialization.use_count() > 1) continue;
    if (const int status = specialization->traverse(visit, arg)) return status;
  }
  return 0;
}

}  // namespace hostjit
