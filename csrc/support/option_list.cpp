// SPDX-License-Identifier: Apache-2.0
#include "support/option_list.h"

#include "support/check.h"

namespace hostjit {
namespace {

constexpr std::string_view kSpace = " \t\n\r";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The trimmed, non-empty parts between commas that no parenthesis encloses.
std::vector<std::string_view> split_at_commas(std::string_view source, std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool at_end = i == text.size();
    if (at_end || (text[i] == ',' && depth == 0)) {
      const std::string_view part = trimmed(text.substr(begin, i - begin));
      if (!part.empty()) parts.push_back(part);
      begin = i + 1;
    } else if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')') {
      HOSTJIT_CHECK(--depth >= 0, source, ": ')' without '(' in '", text, "'");
    }
  }
  HOSTJIT_CHECK(depth == 0, source, ": '(' without ')' in '", text, "'");
  return parts;
}

}  // namespace

std::vector<OptionWord> parse_option_list(std::string_view source, std::string_view text) {
  std::vector<OptionWord> words;
  for (const std::string_view part : split_at_commas(source, text)) {
    const size_t open = part.find('(');
    OptionWord word{std::string(trimmed(part.substr(0, open))), {}};
    if (open != std::string_view::npos) {
      HOSTJIT_CHECK(part.back() == ')', source, ": expected ',' after ')' in '", part, "'");
      HOSTJIT_CHECK(!word.name.empty(), source, ": expected a name before '(' in '", part, "'");
      const std::string_view inner = part.substr(open + 1, part.size() - open - 2);
      for (const std::string_view argument : split_at_commas(source, inner)) {
        word.arguments.emplace_back(argument);
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace hostjit
