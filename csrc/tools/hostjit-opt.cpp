// SPDX-License-Identifier: Apache-2.0
// hostjit-opt: reads Host IR text, runs passes and prints the result.
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/reference.h"
#include "passes/pass_manager.h"
#include "passes/pipeline.h"
#include "support/check.h"

namespace hostjit {
namespace {

constexpr const char* kUsage =
    "usage: hostjit-opt [options] [file.hir | -]\n"
    "\n"
    "Reads a Host IR program (standard input without a file), verifies it, runs passes and prints "
    "it.\n"
    "\n"
    "  --passes=<a,b>      these passes, in this order\n"
    "  --passes=default    the passes that every program goes through\n"
    "  --verify            print nothing when the program is correct\n"
    "  --timing            print microseconds per pass to standard error\n"
    "  --list-passes       print the passes and what they do\n"
    "  --print-reference   print the reference page of the ops\n"
    "  --help              print this text\n";

struct Options {
  std::string file = "-";
  std::vector<Pass> passes;
  bool verify_only = false;
  bool timing = false;
};

std::vector<Pass> passes_named(const std::string& names) {
  const std::span<const Pass> pipeline = default_pipeline();
  if (names == "default") return {pipeline.begin(), pipeline.end()};
  std::vector<Pass> passes;
  std::istringstream stream(names);
  for (std::string name; std::getline(stream, name, ',');) passes.push_back(find_pass(name));
  return passes;
}

std::string read(const std::string& file) {
  std::stringstream text;
  if (file == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream stream(file);
  HOSTJIT_CHECK(stream.good(), file, ": ", std::strerror(errno));
  text << stream.rdbuf();
  return text.str();
}

void list_passes() {
  for (const Pass& pass : default_pipeline()) std::cout << pass.name << ": " << pass.doc << "\n";
}

void run(const Options& options) {
  Program program = [&] {
    try {
      return parse_program(read(options.file));
    } catch (const Error& error) {
      throw_error(
          concat(options.file == "-" ? "standard input" : options.file, ": ", error.what()));
    }
  }();
  for (const PassTiming& timing : run_passes(program, options.passes)) {
    if (!options.timing) continue;
    std::cerr << timing.name << ": " << timing.microseconds << " us"
              << (timing.changed ? "\n" : " (unchanged)\n");
  }
  if (!options.verify_only) std::cout << to_string(program);
}

int main_of_tool(const std::vector<std::string>& arguments) {
  Options options;
  for (const std::string& argument : arguments) {
    if (argument == "--help") return std::cout << kUsage, 0;
    if (argument == "--list-passes") return list_passes(), 0;
    if (argument == "--print-reference") return std::cout << op_reference(), 0;
    if (argument.starts_with("--passes=")) {
      options.passes = passes_named(argument.substr(std::strlen("--passes=")));
    } else if (argument == "--verify") {
      options.verify_only = true;
    } else if (argument == "--timing") {
      options.timing = true;
    } else {
      HOSTJIT_CHECK(!argument.starts_with("--"), "unknown option '", argument, "'\n", kUsage);
      options.file = argument;
    }
  }
  run(options);
  return 0;
}

}  // namespace
}  // namespace hostjit

int main(int argc, char** argv) {
  try {
    return hostjit::main_of_tool({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "hostjit-opt: " << error.what() << "\n";
    return 1;
  }
}
