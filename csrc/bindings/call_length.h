// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "ir/program.h"

namespace hostjit {

// True when a call may take long enough for other threads to want the GIL: operators, and large
// kernels, copies and products, and functions of others. `program` may be without its kernels.
bool takes_long(const Program& program, const std::map<std::string, Kernel>& kernels);

// True when some node may issue a warning of PyTorch: operators, and copies from complex to real.
bool may_warn(const Program& program);

}  // namespace hostjit
