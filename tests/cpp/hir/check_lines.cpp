// SPDX-License-Identifier: Apache-2.0
#include "hir/check_lines.h"

#include <sstream>

#include "support/check.h"

namespace hostjit {
namespace {

std::string with_single_blanks(const std::string& text) {
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word;) out += (out.empty() ? "" : " ") + word;
  return out;
}

bool contains(const std::string& line, const std::string& text) {
  return line.find(text) != std::string::npos;
}

}  // namespace

std::string check_output(const std::vector<CheckLine>& checks, const std::string& output) {
  std::vector<std::string> lines;
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);) lines.push_back(with_single_blanks(line));

  size_t next = 0;  // the first line after the last match
  std::vector<std::string> forbidden;
  const auto find_forbidden = [&](size_t end) -> std::string {
    for (const std::string& text : forbidden) {
      for (size_t i = next; i < end; ++i) {
        if (contains(lines[i], text)) return concat("CHECK-NOT: ", text, "\nfound: ", lines[i]);
      }
    }
    forbidden.clear();
    return "";
  };
  for (const CheckLine& check : checks) {
    const std::string text = with_single_blanks(check.text);
    if (check.kind == CheckLine::Kind::kNot) {
      forbidden.push_back(text);
      continue;
    }
    size_t match = next;
    if (check.kind == CheckLine::Kind::kNext) {
      if (match >= lines.size() || !contains(lines[match], text)) {
        return concat("CHECK-NEXT: ", text,
                      "\nfound: ", match < lines.size() ? lines[match] : "the end");
      }
    } else {
      while (match < lines.size() && !contains(lines[match], text)) ++match;
      if (match == lines.size()) return concat("CHECK: ", text, "\nnot found");
    }
    if (std::string failure = find_forbidden(match); !failure.empty()) return failure;
    next = match + 1;
  }
  return find_forbidden(lines.size());
}

}  // namespace hostjit
