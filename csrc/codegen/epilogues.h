// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "codegen/storage.h"
#include "ir/program.h"

namespace hostjit {

// A launch that only goes on with what the product right before it wrote, element by element and
// in the same memory: an activation. Done a few columns behind the product, its arithmetic takes
// place while the next weights are on their way from the L2 cache.
struct Epilogue {
  const Op* product = nullptr;
  const LaunchKernel* launch = nullptr;
  unsigned operand = 0;  // the position among the launch's inputs of what the product wrote
};

// Of the body of a static program, as far as the Host IR tells: kernels may not lend themselves.
std::vector<Epilogue> find_epilogues(const Program& program, const StoragePlan& storage);

}  // namespace hostjit
