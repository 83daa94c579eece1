// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "ir/op.h"

namespace hostjit {

// Calls `visitor(payload)` with the concrete payload of `op`. A visitor that lacks a case for a
// type of the op list does not compile; there is no default case.
template <class OpRef, class Visitor>
decltype(auto) visit_op(OpRef& op, Visitor&& visitor) {
  using Result = decltype(visitor(std::get<Allocate>(op.payload)));
  return std::visit(
      [&](auto& payload) -> Result {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(payload)>, std::monostate>) {
          throw_internal_error(__FILE__, __LINE__, "op without a payload");
        } else {
          return std::forward<Visitor>(visitor)(payload);
        }
      },
      op.payload);
}

// Shows every declared field of `op`, in order, to `visitor`, which has overloads of
//   operand(name, value, access)             one required operand
//   optional_operand(name, value, access)    may be null
//   operands(name, values, access)           any number
//   attribute(name, value, default)          compile-time data; `default` may be Required
//   result(name, value, kind)                one result
//   results(name, values, kind)              any number
//   region(name, region)                     ops inside; a NestedRegion
template <class OpRef, class Visitor>
void visit_fields(OpRef& op, Visitor& visitor) {
  visit_op(
      op, [&](auto& payload) { std::remove_cvref_t<decltype(payload)>::fields(payload, visitor); });
}

// A field visitor that sees operands only: calls `f(Value*&, Access)`, null ones left out.
template <class F>
struct OperandFields {
  F f;
  void operand(std::string_view, auto& value, Access access) {
    if (value) f(value, access);
  }
  void optional_operand(std::string_view, auto& value, Access access) {
    if (value) f(value, access);
  }
  void operands(std::string_view, auto& values, Access access) {
    for (auto& value : values) {
      if (value) f(value, access);
    }
  }
  void attribute(std::string_view, auto&, const auto&) {}
  void result(std::string_view, auto&, ResultKind) {}
  void results(std::string_view, auto&, ResultKind) {}
  void region(std::string_view, auto&) {}
};

// A field visitor that sees operands with their names: calls `f(name, value, access)`, where an
// element of a list is "inputs[0]". A null value is shown only when the operand is required.
template <class F>
struct NamedOperandFields {
  F f;
  void operand(std::string_view name, auto& value, Access access) {
    f(std::string(name), value, access);
  }
  void optional_operand(std::string_view name, auto& value, Access access) {
    if (value) f(std::string(name), value, access);
  }
  void operands(std::string_view name, auto& values, Access access) {
    for (size_t i = 0; i < values.size(); ++i) f(concat(name, "[", i, "]"), values[i], access);
  }
  void attribute(std::string_view, auto&, const auto&) {}
  void result(std::string_view, auto&, ResultKind) {}
  void results(std::string_view, auto&, ResultKind) {}
  void region(std::string_view, auto&) {}
};

// A field visitor that sees results only: calls `f(Value*&, ResultKind)`.
template <class F>
struct ResultFields {
  F f;
  void operand(std::string_view, auto&, Access) {}
  void optional_operand(std::string_view, auto&, Access) {}
  void operands(std::string_view, auto&, Access) {}
  void attribute(std::string_view, auto&, const auto&) {}
  void result(std::string_view, auto& value, ResultKind kind) {
    if (value) f(value, kind);
  }
  void results(std::string_view, auto& values, ResultKind kind) {
    for (auto& value : values) {
      if (value) f(value, kind);
    }
  }
  void region(std::string_view, auto&) {}
};

// A field visitor that sees regions only: calls `f(name, NestedRegion&)`.
template <class F>
struct RegionFields {
  F f;
  void operand(std::string_view, auto&, Access) {}
  void optional_operand(std::string_view, auto&, Access) {}
  void operands(std::string_view, auto&, Access) {}
  void attribute(std::string_view, auto&, const auto&) {}
  void result(std::string_view, auto&, ResultKind) {}
  void results(std::string_view, auto&, ResultKind) {}
  void region(std::string_view name, auto& region) { f(name, region); }
};

// A field visitor that sees sizes among the attributes only: calls `f(Dim&)`.
template <class F>
struct DimFields {
  F f;
  void operand(std::string_view, auto&, Access) {}
  void optional_operand(std::string_view, auto&, Access) {}
  void operands(std::string_view, auto&, Access) {}
  void attribute(std::string_view, auto& value, const auto&) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<T, Dim>) {
      f(value);
    } else if constexpr (std::is_same_v<T, std::vector<Dim>>) {
      for (auto& dim : value) f(dim);
    }
  }
  void result(std::string_view, auto&, ResultKind) {}
  void results(std::string_view, auto&, ResultKind) {}
  void region(std::string_view, auto&) {}
};

template <class OpRef, class F>
void for_each_dim(OpRef& op, F f) {
  DimFields<F> fields{std::move(f)};
  visit_fields(op, fields);
}

template <class OpRef, class F>
void for_each_operand(OpRef& op, F f) {
  OperandFields<F> fields{std::move(f)};
  visit_fields(op, fields);
}

template <class OpRef, class F>
void for_each_named_operand(OpRef& op, F f) {
  NamedOperandFields<F> fields{std::move(f)};
  visit_fields(op, fields);
}

template <class OpRef, class F>
void for_each_result(OpRef& op, F f) {
  ResultFields<F> fields{std::move(f)};
  visit_fields(op, fields);
}

template <class OpRef, class F>
void for_each_region(OpRef& op, F f) {
  RegionFields<F> fields{std::move(f)};
  visit_fields(op, fields);
}

// Calls `f(Op&)` for the ops of a region and of the regions inside it, an op before those in it.
template <class RegionRef, class F>
void for_each_op(RegionRef& region, const F& f) {
  for (auto& op : region) {
    f(*op);
    for_each_region(*op, [&](std::string_view, auto& nested) { for_each_op(*nested, f); });
  }
}

}  // namespace hostjit
