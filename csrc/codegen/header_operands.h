// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ir/program.h"

namespace hostjit {

class StoragePlan;

// The tensors that `op` hands to an extern as at::Tensor. The memory of its operands is in `plan`.
std::vector<const Value*> header_operands(const Op& op, const StoragePlan& plan);

}  // namespace hostjit
