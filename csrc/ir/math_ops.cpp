// SPDX-License-Identifier: Apache-2.0
#include "ir/math_ops.h"

#include <initializer_list>

namespace hostjit {
namespace {

struct NamedValue {
  std::string_view name;
  const Value* value;
};

// Requires the dtype and device of the first operand of all.
void require_uniform(const OpVerifier& verifier, std::initializer_list<NamedValue> operands) {
  const NamedValue& first = *operands.begin();
  const TensorType& type = verifier.require_tensor(first.name, first.value);
  for (const NamedValue& operand : operands) {
    verifier.require_dtype(operand.name, operand.value, type.dtype);
    verifier.require_device(operand.name, operand.value, type.device);
  }
}

// lhs[..., M, K] @ rhs[..., K, N]: the sizes of the result. Both have `rank` and the same batch.
std::vector<Dim> product_sizes(const OpVerifier& verifier, const Value* lhs, const Value* rhs,
                               int64_t rank) {
  verifier.require_rank("lhs", lhs, rank);
  verifier.require_rank("rhs", rhs, rank);
  std::vector<Dim> sizes = lhs->tensor_type().dims;
  std::vector<Dim> expected = rhs->tensor_type().dims;
  for (int64_t i = 0; i < rank - 2; ++i) expected[i] = sizes[i];
  expected[rank - 2] = sizes[rank - 1];
  verifier.require_sizes("rhs", rhs, expected);
  sizes[rank - 1] = expected[rank - 1];
  return sizes;
}

void verify_sum(const OpVerifier& verifier, const auto& op, int64_t rank) {
  require_uniform(verifier, {{"lhs", op.lhs}, {"rhs", op.rhs}, {"bias", op.bias}, {"out", op.out}});
  const std::vector<Dim> sizes = product_sizes(verifier, op.lhs, op.rhs, rank);
  verifier.require_sizes("out", op.out, sizes);
  verifier.require_broadcasts_to("bias", op.bias, sizes);
  verifier.require_no_internal_overlap("out", op.out);
}

}  // namespace

void Matmul::verify(const OpVerifier& verifier) const {
  require_uniform(verifier, {{"lhs", lhs}, {"rhs", rhs}, {"out", out}});
  verifier.require_sizes("out", out, product_sizes(verifier, lhs, rhs, /*rank=*/2));
  verifier.require_no_internal_overlap("out", out);
}

void Linear::verify(const OpVerifier& verifier) const {
  require_uniform(verifier, {{"input", input}, {"weight", weight}, {"out", out}});
  std::vector<Dim> sizes = input->tensor_type().dims;
  verifier.require(!sizes.empty(), "input", "has rank 0", "1 or more");
  verifier.require_rank("weight", weight, 2);
  const Dim& features = weight->tensor_type().dims[0];
  verifier.require_sizes("weight", weight, {features, sizes.back()});
  if (bias) {
    require_uniform(verifier, {{"input", input}, {"bias", bias}});
    verifier.require_sizes("bias", bias, {features});
  }
  sizes.back() = features;
  verifier.require_sizes("out", out, sizes);
  verifier.require_no_internal_overlap("out", out);
}

void Bmm::verify(const OpVerifier& verifier) const {
  require_uniform(verifier, {{"lhs", lhs}, {"rhs", rhs}, {"out", out}});
  verifier.require_sizes("out", out, product_sizes(verifier, lhs, rhs, /*rank=*/3));
  verifier.require_no_internal_overlap("out", out);
}

void Addmm::verify(const OpVerifier& verifier) const { verify_sum(verifier, *this, /*rank=*/2); }

void Baddbmm::verify(const OpVerifier& verifier) const { verify_sum(verifier, *this, /*rank=*/3); }

}  // namespace hostjit
