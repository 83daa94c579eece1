// SPDX-License-Identifier: Apache-2.0
#include "bindings/call_length.h"

#include <limits>

#include "ir/effects.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

// Elements of a copy, and multiply-adds of a product, that take some 10 us.
constexpr int64_t kLongCopy = 1 << 16;
constexpr int64_t kLongProduct = 1 << 20;

template <class Holds>
bool any_op(const Program& program, Holds holds) {
  bool result = false;
  for (const Region* region : {&program.init(), &program.body()}) {
    for_each_op(*region, [&](const Op& op) { result = result || holds(op); });
  }
  return result;
}

bool op_may_warn(const Op& op) {
  if (const auto* copy = op.get_if<Copy>()) {
    return is_complex(copy->source->tensor_type().dtype) &&
           !is_complex(copy->out->tensor_type().dtype);
  }
  return op.get_if<AtenCall>() != nullptr;
}

int64_t num_elements(const Value* value) {
  const TensorType& type = value->tensor_type();
  return type.is_static() ? type.num_elements() : std::numeric_limits<int64_t>::max();
}

// One multiply-add per element of out and element of a row of `lhs`.
bool is_long_product(const Value* lhs, const Value* out) {
  const int64_t elements = num_elements(out);
  const TensorType& type = lhs->tensor_type();
  if (elements >= kLongProduct || type.rank() == 0 || !type.is_static()) return true;
  return elements * type.sizes().back() >= kLongProduct;
}

bool op_takes_long(const Op& op, const std::map<std::string, Kernel>& kernels) {
  if (op.get_if<AtenCall>() != nullptr || has_regions(op)) return true;
  // What a C function does is not known; it may wait for a thread that needs the GIL.
  if (const auto* launch = op.get_if<LaunchKernel>()) {
    return !launch->grid.empty() ||
           kernels.at(launch->kernel).language == KernelLanguage::kCFunction;
  }
  if (const auto* copy = op.get_if<Copy>()) return num_elements(copy->out) >= kLongCopy;
  if (const auto* product = op.get_if<Matmul>()) return is_long_product(product->lhs, product->out);
  if (const auto* product = op.get_if<Bmm>()) return is_long_product(product->lhs, product->out);
  if (const auto* product = op.get_if<Addmm>()) return is_long_product(product->lhs, product->out);
  if (const auto* product = op.get_if<Baddbmm>()) {
    return is_long_product(product->lhs, product->out);
  }
  if (const auto* product = op.get_if<Linear>()) {
    return is_long_product(product->input, product->out);
  }
  return false;
}

}  // namespace

bool takes_long(const Program& program, const std::map<std::string, Kernel>& kernels) {
  return any_op(program, [&](const Op& op) { return op_takes_long(op, kernels); });
}

bool may_warn(const Program& program) { return any_op(program, &op_may_warn); }

}  // namespace hostjit
