// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/program.h"

namespace hostjit {

// Makes a view of a view a view of the first source, a view with its source's own shape that
// source, and of views that are equal one. A view that is an output stays where its source is an
// input or another output: eager code returns a tensor object of its own there, too. So does a view
// that an op uses together with the same memory where it writes: an op names such memory once.
void canonicalise_views(Program& program);

}  // namespace hostjit
