// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hostjit {

// One word of "a, b(x, y(z))": a name and what stood in its parentheses.
struct OptionWord {
  std::string name;
  std::vector<std::string> arguments;
  friend bool operator==(const OptionWord&, const OptionWord&) = default;
};

// Splits `text` at the commas outside parentheses; names and arguments are trimmed, empty words
// are skipped. An argument may hold parentheses itself. Throws Error, beginning with `source`
// (the variable that the text comes from), when parentheses do not match.
std::vector<OptionWord> parse_option_list(std::string_view source, std::string_view text);

}  // namespace hostjit
