// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace hostjit {

// A function of one argument, which it ignores: whether nothing has changed in classes and their
// bases, and functions have their code and default values. It compares a few words of memory for
// each, and keeps neither alive: false once one is gone.
//
// `look`: called with a class in which something did change; true to go on with what it is now.
// `abc_token`: what `abc.get_cache_token()` has to give, or None.
pybind11::object make_class_check(const pybind11::iterable& classes,
                                  const pybind11::iterable& functions, pybind11::function look,
                                  pybind11::object abc_token);

}  // namespace hostjit
