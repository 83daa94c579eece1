// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/shape_ops.h"
#include "support/literal.h"

namespace hostjit {

// The text of an attribute, for each type that one may have. field_parser.cpp reads them.
inline std::string attribute_to_string(bool value) { return value ? "true" : "false"; }
inline std::string attribute_to_string(int64_t value) { return std::to_string(value); }
inline std::string attribute_to_string(double value) { return double_to_string(value); }
inline std::string attribute_to_string(const std::string& value) { return quoted(value); }
inline std::string attribute_to_string(const Literal& value) { return to_string(value); }
inline std::string attribute_to_string(const std::vector<int64_t>& values) {
  return to_string(values);
}
inline std::string attribute_to_string(const Dim& value) { return to_string(value); }
inline std::string attribute_to_string(const std::vector<Dim>& values) { return to_string(values); }
inline std::string attribute_to_string(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + quoted(value);
  return "[" + text + "]";
}
inline std::string attribute_to_string(const std::vector<Literal>& values) {
  return to_string(Literal{values});
}
inline std::string attribute_to_string(IndexOperation value) {
  return std::string(to_string(value));
}

}  // namespace hostjit
