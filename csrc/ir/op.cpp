// SPDX-License-Identifier: Apache-2.0
#include "ir/op.h"

#include "ir/visitor.h"

namespace hostjit {
namespace {

// Finds the first text attribute of an op: the kernel, the operator, the label of a range.
struct FirstText {
  const std::string* text = nullptr;
  void operand(std::string_view, Value*, Access) {}
  void optional_operand(std::string_view, Value*, Access) {}
  void operands(std::string_view, const std::vector<Value*>&, Access) {}
  void attribute(std::string_view, const auto&, const auto&) {}
  void attribute(std::string_view, const std::string& value, const auto&) {
    if (!text) text = &value;
  }
  void result(std::string_view, Value*, ResultKind) {}
  void results(std::string_view, const std::vector<Value*>&, ResultKind) {}
  void region(std::string_view, const NestedRegion&) {}
};

}  // namespace

const OpInfo& Op::info() const {
  return visit_op(*this, [](const auto& payload) -> const OpInfo& {
    return std::remove_cvref_t<decltype(payload)>::kInfo;
  });
}

OpVariant make_payload(std::string_view name) {
  std::string valid;
#define HOSTJIT_MAKE_PAYLOAD(type)                                          \
  if (name == type::kInfo.name) return OpVariant(std::in_place_type<type>); \
  valid += concat(valid.empty() ? "" : ", ", type::kInfo.name);
  HOSTJIT_FOR_EACH_OP(HOSTJIT_MAKE_PAYLOAD)
#undef HOSTJIT_MAKE_PAYLOAD
  throw_error(concat("unknown op '", name, "', expected one of: ", valid));
}

std::string describe(const Op& op) {
  FirstText first;
  visit_fields(op, first);
  std::string text(op.name());
  if (first.text) text += concat(" '", *first.text, "'");
  if (!op.location.empty()) text += concat(" (", op.location, ")");
  return text;
}

}  // namespace hostjit
