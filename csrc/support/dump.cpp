// SPDX-License-Identifier: Apache-2.0
#include "support/dump.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <mutex>

#include "support/check.h"

namespace hostjit {
namespace {

// How a comment begins in a text of this kind, so that a dump can be read back.
std::string_view comment_mark(std::string_view extension) {
  if (extension == "ll") return "; ";
  if (extension == "s" || extension == "py") return "# ";
  return "// ";
}

std::string file_name_part(std::string_view text) {
  std::string part(text);
  std::ranges::replace_if(
      part, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '.'; }, '_');
  return part;
}

std::string next_file_name(const DumpItem& item) {
  static std::atomic<int> num_files{0};
  std::ostringstream name;
  name << std::setw(4) << std::setfill('0') << num_files++ << '_' << file_name_part(item.program)
       << '_' << file_name_part(item.stage) << '.' << item.extension;
  return name.str();
}

void write_file(const std::string& directory, const DumpItem& item, std::string_view text) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const std::filesystem::path path = std::filesystem::path(directory) / next_file_name(item);
  std::ofstream file(path);
  file << text;
  file.close();
  HOSTJIT_CHECK(!file.fail(), "HOSTJIT_DUMP: cannot write ", path.string());
}

void write_stderr(const DumpItem& item, std::string_view text) {
  const std::string whole = concat(comment_mark(item.extension), "hostjit: ", item.program, ": ",
                                   item.stage, "\n", text, text.ends_with('\n') ? "" : "\n");
  static std::mutex mutex;  // keeps the texts of two threads apart
  const std::lock_guard lock(mutex);
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

}  // namespace

void dump(const DumpItem& item, std::string_view text) {
  if (!is_enabled(item.knob)) return;
  const std::string directory = dump_directory(item.knob);
  if (directory.empty()) {
    write_stderr(item, text);
  } else {
    write_file(directory, item, text);
  }
}

void dump_unchanged(const DumpItem& item) {
  dump(item, concat(comment_mark(item.extension), "(unchanged)\n"));
}

}  // namespace hostjit
