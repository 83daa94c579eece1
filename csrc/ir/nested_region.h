// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>

namespace hostjit {

struct Op;

// Straight-line ops in execution order. A list: passes insert and erase, pointers stay valid.
using Region = std::list<std::unique_ptr<Op>>;

// A region inside an op, as a field of its payload. A copy of a payload refers to the same ops:
// Program::clone gives it ops of its own by renew().
class NestedRegion {
 public:
  NestedRegion();

  Region& operator*() { return *ops_; }
  const Region& operator*() const { return *ops_; }
  Region* operator->() { return ops_.get(); }
  const Region* operator->() const { return ops_.get(); }

  // Refers to a new, empty region.
  void renew();

 private:
  std::shared_ptr<Region> ops_;
};

}  // namespace hostjit
