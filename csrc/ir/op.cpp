// SPDX-License-Identifier: Apache-2.0
#include "ir/op.h"

#include "ir/visitor.h"

namespace hostjit {

const OpInfo& Op::info() const {
  return visit_op(*this, [](const auto& payload) -> const OpInfo& {
    return std::remove_cvref_t<decltype(payload)>::kInfo;
  });
}

}  // namespace hostjit
