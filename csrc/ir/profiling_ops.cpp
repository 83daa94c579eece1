// SPDX-License-Identifier: Apache-2.0
#include "ir/profiling_ops.h"

namespace hostjit {

void RangePush::verify(const OpVerifier& verifier) const {
  verifier.require(!label.empty(), "label", "is empty", "the name of a range");
}

void RangePop::verify(const OpVerifier&) const {}

}  // namespace hostjit
