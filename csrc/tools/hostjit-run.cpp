// SPDX-License-Identifier: Apache-2.0
// hostjit-run [--passes] [--seed N] [--sizes N,M,...] FILE...: runs Host IR texts by the JIT and by
// the evaluator on the same random inputs and compares. A program with symbols runs with each
// --sizes, in the order of its symbols, or with some that are chosen. Exit status 0 when all agree.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "ir/parser.h"
#include "passes/pipeline.h"
#include "tools/runtime_comparison.h"

namespace {

struct Options {
  bool runs_passes = false;
  uint64_t seed = 0;
  std::vector<std::vector<int64_t>> rows;
  std::vector<std::string> files;
};

std::vector<int64_t> parse_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  std::istringstream stream(text);
  for (std::string size; std::getline(stream, size, ',');) sizes.push_back(std::stoll(size));
  return sizes;
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--passes") {
      options.runs_passes = true;
    } else if (word == "--seed" && i + 1 < argc) {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--sizes" && i + 1 < argc) {
      options.rows.push_back(parse_sizes(argv[++i]));
    } else {
      options.files.push_back(word);
    }
  }
  HOSTJIT_CHECK(!options.files.empty(),
                "usage: hostjit-run [--passes] [--seed N] [--sizes N,M,...] FILE...");
  return options;
}

std::string read_file(const std::string& path) {
  std::ifstream stream(path);
  HOSTJIT_CHECK(stream, "can't read '", path, "'");
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool run_file(const std::string& path, const Options& options) {
  hostjit::Program program = hostjit::parse_program(read_file(path));
  if (options.runs_passes) hostjit::run_pipeline(program);
  hostjit::RunnableProgram runnable(program);
  const std::string differences = hostjit::compare_rows(runnable, options.seed, options.rows);
  std::cout << path << ": " << (differences.empty() ? "agree" : "differ") << "\n" << differences;
  return differences.empty();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse_options(argc, argv);
    bool all_agree = true;
    for (const std::string& path : options.files) all_agree &= run_file(path, options);
    return all_agree ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return EXIT_FAILURE;
  }
}
