// SPDX-License-Identifier: Apache-2.0
#include "ir/nested_region.h"

#include "ir/op.h"

namespace hostjit {

NestedRegion::NestedRegion() : ops_(std::make_shared<Region>()) {}

void NestedRegion::renew() { ops_ = std::make_shared<Region>(); }

}  // namespace hostjit
