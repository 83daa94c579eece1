// SPDX-License-Identifier: Apache-2.0
#include "ir/substituted_program.h"

#include <algorithm>
#include <limits>

#include "ir/verifier.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

void set_contiguous_strides(TensorType& type) {
  int64_t stride = 1;
  for (size_t i = type.dims.size(); i-- > 0;) {
    type.strides[i] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(type.dims[i].value, 1), &stride)) {
      stride = std::numeric_limits<int64_t>::max();
    }
  }
}

// Ops that say what shapes must agree, or where memory ends. Kernels work on any, as far as their
// number of items is one.
bool has_shape_rules(const Op& op) {
  if (const auto* launch = op.get_if<LaunchKernel>()) {
    return std::ranges::any_of(launch->grid, [](const Dim& dim) { return !dim.is_constant(); }) ||
           std::ranges::any_of(launch->block, [](const Dim& dim) { return !dim.is_constant(); });
  }
  return op.is<View>() || op.is<Select>() || op.is<Copy>() || op.is<Matmul>() || op.is<Linear>() ||
         op.is<Bmm>() || op.is<Addmm>() || op.is<Baddbmm>() || op.is<Allocate>();
}

}  // namespace

SubstitutedProgram::SubstitutedProgram(const Program& program)
    : program_(program.clone(/*with_kernels=*/false)) {
  const RowSymbols symbols(program);
  const auto add_value = [&](Value* value) {
    values_[value->name()] = value;
    auto* type = std::get_if<TensorType>(&value->mutable_type());
    if (type && !type->is_static()) add_type(*type, symbols);
  };
  for (Value* input : program_.inputs()) add_value(input);
  for (Region* region : {&program_.init(), &program_.body()}) {
    for_each_op(*region, [&](Op& op) {
      if (has_shape_rules(op)) ops_.push_back(&op);
      for_each_dim(op, [&](Dim& dim) { add_dim(dim, symbols); });
      for_each_result(op, [&](Value* value, ResultKind) { add_value(value); });
    });
  }
}

void SubstitutedProgram::add_type(TensorType& type, const RowSymbols& symbols) {
  types_.push_back(&type);
  if (type.strides.empty()) {
    type.strides.resize(type.dims.size());
    contiguous_.push_back(&type);
  }
  for (auto* dims : {&type.dims, &type.strides}) {
    for (Dim& dim : *dims) add_dim(dim, symbols);
  }
}

void SubstitutedProgram::add_dim(Dim& dim, const RowSymbols& symbols) {
  if (dim.is_constant()) return;
  places_.push_back({&dim, symbols.at(dim.symbol)});
  dim = Dim(0);
}

void SubstitutedProgram::substitute(std::span<const int64_t> values) {
  for (const Place& place : places_) place.dim->value = values[place.symbol];
  for (TensorType* type : contiguous_) set_contiguous_strides(*type);
  for (const TensorType* type : types_) type->check();
}

void SubstitutedProgram::verify() const {
  for (const Op* op : ops_) {
    try {
      const OpVerifier verifier(op->name(), "");
      visit_op(*op, [&](const auto& payload) { payload.verify(verifier); });
    } catch (const Error&) {
      verify_op(*op);  // names the op in full
      throw;
    }
  }
}

Program SubstitutedProgram::clone(const Program& original) const {
  Program copy = program_.clone();
  for (const auto& [name, kernel] : original.kernels()) copy.add_kernel(kernel);
  return copy;
}

}  // namespace hostjit
