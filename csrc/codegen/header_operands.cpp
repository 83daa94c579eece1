// SPDX-License-Identifier: Apache-2.0
#include "codegen/header_operands.h"

#include <optional>

#include "codegen/copy_plan.h"
#include "codegen/open_product.h"
#include "codegen/product_means.h"
#include "codegen/storage.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

template <class ProductOp>
bool may_be_aten(const ProductOp& op, const StoragePlan& plan) {
  if (describe_open(op, plan)) return false;
  const std::optional<Product> product = describe(op);
  if (!product) return true;
  const ProductMeans means = means_of(*product, plan);
  return means == ProductMeans::kAten || means == ProductMeans::kFastest;
}

struct HeaderOperands {
  const StoragePlan& plan;
  std::vector<const Value*> values = {};

  void operator()(const Copy& op) {
    const CopyKind kind = plan_copy(op.source->tensor_type(), plan.of(op.source),
                                    op.out->tensor_type(), plan.of(op.out));
    if (kind == CopyKind::kLibrary || kind == CopyKind::kBySize) values = {op.source, op.out};
  }
  void operator()(const Matmul& op) {
    if (may_be_aten(op, plan)) values = {op.lhs, op.rhs, op.out};
  }
  void operator()(const Bmm& op) {
    if (may_be_aten(op, plan)) values = {op.lhs, op.rhs, op.out};
  }
  void operator()(const Addmm& op) {
    if (may_be_aten(op, plan)) values = {op.bias, op.lhs, op.rhs, op.out};
  }
  void operator()(const Baddbmm& op) {
    if (may_be_aten(op, plan)) values = {op.bias, op.lhs, op.rhs, op.out};
  }
  void operator()(const Linear& op) {
    if (!may_be_aten(op, plan)) return;
    values = {op.input, op.weight, op.out};
    if (op.bias) values.push_back(op.bias);
  }
  void operator()(const AtenCall& op) {
    values.assign(op.inputs.begin(), op.inputs.end());
    values.insert(values.end(), op.mutated.begin(), op.mutated.end());
    std::erase_if(values, [](const Value* value) { return !value->is_tensor(); });
  }
  void operator()(const Allocate&) {}
  void operator()(const Deallocate&) {}
  void operator()(const Fill&) {}
  void operator()(const Constant&) {}
  void operator()(const Item&) {}
  void operator()(const View&) {}
  void operator()(const Select&) {}
  void operator()(const Size&) {}
  void operator()(const IndexConstant&) {}
  void operator()(const IndexBinary&) {}
  void operator()(const FloatConstant&) {}
  void operator()(const LaunchKernel&) {}
  void operator()(const For&) {}
  void operator()(const While&) {}
  void operator()(const If&) {}
  void operator()(const CurrentStream&) {}
  void operator()(const PoolStream&) {}
  void operator()(const SetStream&) {}
  void operator()(const RecordEvent&) {}
  void operator()(const WaitEvent&) {}
  void operator()(const Synchronize&) {}
  void operator()(const RangePush&) {}
  void operator()(const RangePop&) {}
};

}  // namespace

std::vector<const Value*> header_operands(const Op& op, const StoragePlan& plan) {
  HeaderOperands cases{plan};
  visit_op(op, cases);
  return cases.values;
}

}  // namespace hostjit
