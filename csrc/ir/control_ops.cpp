// SPDX-License-Identifier: Apache-2.0
#include "ir/control_ops.h"

namespace hostjit {
namespace {

void require_one_bool(const OpVerifier& verifier, const Value* condition) {
  verifier.require_dtype("condition", condition, DType::kBool);
  verifier.require_device("condition", condition, Device{});
  const TensorType& type = condition->tensor_type();
  for (const Dim& dim : type.dims) {
    if (dim == Dim(1)) continue;
    verifier.fail("condition", concat("has sizes ", to_string(type.dims)), "one element");
  }
}

}  // namespace

void For::verify(const OpVerifier& verifier) const {
  verifier.require_scalar("begin", begin, {"index"});
  verifier.require_scalar("end", end, {"index"});
  verifier.require_scalar("index", index, {"index"});
  if (step <= 0) verifier.fail("step", concat("is ", step), "more than 0");
}

uint64_t For::num_iterations(int64_t first, int64_t last) const {
  if (first >= last) return 0;
  const uint64_t distance = static_cast<uint64_t>(last) - static_cast<uint64_t>(first);
  return (distance - 1) / static_cast<uint64_t>(step) + 1;
}

void While::verify(const OpVerifier& verifier) const { require_one_bool(verifier, condition); }

void If::verify(const OpVerifier& verifier) const { require_one_bool(verifier, condition); }

}  // namespace hostjit
