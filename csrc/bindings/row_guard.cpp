// SPDX-License-Identifier: Apache-2.0
#include "bindings/row_guard.h"

#include <utility>

namespace hostjit {
namespace {

// Beyond so many it is asked again.
constexpr size_t kMostVerdicts = 4096;

}  // namespace

RowGuard::RowGuard(PyObject* callable, std::vector<size_t> slots)
    : callable_(callable == Py_None ? PyRef() : PyRef::share(callable)), slots_(std::move(slots)) {}

bool RowGuard::accepts(const RowSizes& sizes, const OpenNumbers& numbers, const Leaves& leaves) {
  const RowSizes asked = question(sizes, leaves);
  const auto found = verdicts_.find(asked);
  if (found != verdicts_.end()) return found->second;
  const bool verdict = !callable_ || ask(asked, numbers, leaves);
  if (verdicts_.size() >= kMostVerdicts) verdicts_.clear();
  verdicts_[asked] = verdict;
  return verdict;
}

RowSizes RowGuard::question(RowSizes sizes, const Leaves& leaves) const {
  for (const size_t slot : slots_) sizes.push_back(leaves.numbers[slot]);
  return sizes;
}

bool RowGuard::ask(const RowSizes& asked, const OpenNumbers& numbers, const Leaves& leaves) const {
  const size_t num_sizes = asked.size() - slots_.size();
  const PyRef values = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(asked.size())));
  for (size_t i = 0; values && i < asked.size(); ++i) {
    PyObject* value = i < num_sizes ? PyLong_FromLongLong(asked[i])
                                    : numbers.to_python(slots_[i - num_sizes], leaves);
    PyTuple_SET_ITEM(values.get(), static_cast<Py_ssize_t>(i), value);
  }
  const PyRef answer = PyRef::steal(
      values ? PyObject_CallFunctionObjArgs(callable_.get(), values.get(), nullptr) : nullptr);
  if (!answer) PyErr_Clear();  // what can't be asked is not so
  return answer && answer.get() == Py_True;
}

}  // namespace hostjit
