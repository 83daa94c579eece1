// SPDX-License-Identifier: Apache-2.0
#include "hir/hir_case.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/check.h"

namespace hostjit {
namespace {

// True if `line` is a comment "// <key> <rest>"; sets `rest`.
bool take_key(const std::string& line, const std::string& key, std::string& rest) {
  const size_t start = line.find_first_not_of(" \t");
  const std::string prefix = "// " + key;
  if (start == std::string::npos || line.compare(start, prefix.size(), prefix) != 0) return false;
  const size_t text = line.find_first_not_of(" \t", start + prefix.size());
  rest = text == std::string::npos ? "" : line.substr(text);
  return true;
}

void read_line(const std::string& line, HirCase& test) {
  std::string rest;
  if (take_key(line, "RUN:", rest)) {
    const size_t equals = rest.find('=');
    const bool has_argument = equals != std::string::npos;
    test.runs.push_back({rest.substr(0, equals), has_argument ? rest.substr(equals + 1) : ""});
  } else if (take_key(line, "CHECK:", rest)) {
    test.checks.push_back({CheckLine::Kind::kCheck, rest});
  } else if (take_key(line, "CHECK-NEXT:", rest)) {
    test.checks.push_back({CheckLine::Kind::kNext, rest});
  } else if (take_key(line, "CHECK-NOT:", rest)) {
    test.checks.push_back({CheckLine::Kind::kNot, rest});
  } else if (take_key(line, "EXPECT-ERROR:", rest)) {
    test.errors.push_back(rest);
  }
  test.text += line + "\n";
}

}  // namespace

std::vector<HirCase> split_hir_cases(const std::string& file_name, const std::string& text) {
  std::vector<HirCase> tests;
  std::istringstream stream(text);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const bool separator = line == "// -----";
    if (separator && !tests.empty() && tests.back().text.ends_with("\n\n")) {
      tests.back().text.pop_back();
    }
    if (separator || tests.empty()) {
      tests.emplace_back().name = concat(file_name, ":", separator ? number + 1 : number);
    }
    if (!separator) read_line(line, tests.back());
  }
  return tests;
}

std::vector<HirCase> load_hir_cases(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".hir") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<HirCase> tests;
  for (const auto& path : paths) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    const std::string name = std::filesystem::relative(path, folder).string();
    for (HirCase& test : split_hir_cases(name, text.str())) tests.push_back(std::move(test));
  }
  return tests;
}

}  // namespace hostjit
