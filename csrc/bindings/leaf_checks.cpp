// SPDX-License-Identifier: Apache-2.0
#include "bindings/leaf_checks.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <string_view>

#include "bindings/argument_spec.h"
#include "bindings/object_state.h"
#include "bindings/tensor_watches.h"
#include "support/check.h"

namespace hostjit {
namespace {

bool has_gradient(PyObject* tensor) { return THPVariable_Unpack(tensor).grad().defined(); }

bool has_no_gradient(PyObject* tensor) { return !has_gradient(tensor); }

bool is_unhooked(PyObject* tensor) {
  const auto& variable = *reinterpret_cast<THPVariable*>(tensor);
  const auto is_empty = [](PyObject* hooks) {
    return hooks == nullptr || (PyDict_Check(hooks) && PyDict_GET_SIZE(hooks) == 0);
  };
  return is_empty(variable.backward_hooks) && is_empty(variable.post_accumulate_grad_hooks) &&
         is_plain_leaf(THPVariable_Unpack(tensor));
}

bool is_unmarked(PyObject* tensor) { return !has_own_attributes(tensor); }

bool is_unshifted(PyObject* tensor) { return THPVariable_Unpack(tensor).storage_offset() == 0; }

struct Kind {
  std::string_view name;
  bool (*holds)(PyObject* tensor);
};

constexpr Kind kKinds[] = {
    {"has_gradient", has_gradient}, {"no_gradient", has_no_gradient}, {"unhooked", is_unhooked},
    {"unmarked", is_unmarked},      {"unshifted", is_unshifted},
};

}  // namespace

LeafChecks::LeafChecks(const std::vector<std::pair<std::string, size_t>>& checks,
                       size_t num_leaves) {
  for (const auto& [name, leaf] : checks) {
    const auto* kind = std::ranges::find(kKinds, std::string_view(name), &Kind::name);
    HOSTJIT_CHECK(kind != std::end(kKinds), "specialization: unknown leaf check '", name, "'");
    HOSTJIT_CHECK(leaf < num_leaves, "specialization: checked leaf ", leaf, " is out of range");
    checks_.push_back({kind->holds, leaf});
  }
}

bool LeafChecks::hold(const Leaves& leaves) const {
  return std::ranges::all_of(checks_,
                             [&](const Check& check) { return check.holds(leaves[check.leaf]); });
}

}  // namespace hostjit
