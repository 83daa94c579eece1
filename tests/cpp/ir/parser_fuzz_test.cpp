// SPDX-License-Identifier: Apache-2.0
// Malformed text gives an Error, never a crash. Seeds are the programs of tests/hir.
#include <gtest/gtest.h>

#include <random>

#include "hir/hir_case.h"
#include "ir/parser.h"
#include "ir/printer.h"

namespace hostjit {
namespace {

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  for (const HirCase& test : load_hir_cases(HOSTJIT_TEST_DATA_DIR "/hir/ir")) {
    if (test.errors.empty()) texts.push_back(test.text);
  }
  return texts;
}

// Parses; what is accepted must round-trip. Returns whether it was accepted.
bool parse_any(const std::string& text) {
  try {
    const Program program = parse_program(text);
    const std::string printed = to_string(program);
    EXPECT_TRUE(structurally_equal(program, parse_program(printed))) << printed;
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 5), "line ") << text;
    return false;
  }
}

TEST(ParserFuzz, SurvivesTruncation) {
  for (const std::string& text : seeds()) {
    EXPECT_TRUE(parse_any(text));
    for (size_t length = 0; length < text.size(); ++length) parse_any(text.substr(0, length));
  }
}

TEST(ParserFuzz, SurvivesChangedBytes) {
  std::mt19937 random(/*seed=*/7);
  const std::string alphabet(
      "%@$()[]{}<>=,:.\"\\-+/ \n\0\x80\xff"
      "09aeinx_",
      34);
  for (const std::string& text : seeds()) {
    for (int round = 0; round < 2000; ++round) {
      std::string changed = text;
      for (int change = 0; change <= round % 4; ++change) {
        const size_t place = random() % changed.size();
        const char byte = alphabet[random() % alphabet.size()];
        switch (random() % 4) {
          case 0: changed[place] = byte; break;
          case 1: changed.insert(place, 1, byte); break;
          case 2: changed.erase(place, 1 + random() % 8); break;
          case 3: changed.insert(place, changed.substr(random() % changed.size(), 12)); break;
        }
        if (changed.empty()) break;
      }
      parse_any(changed);
    }
  }
}

TEST(ParserFuzz, SurvivesDeepNesting) {
  for (const char* open : {"[", "(", "{", "<", "tensor<", "dtype(", "init {", "complex("}) {
    std::string nested;
    for (int i = 0; i < 100000; ++i) nested += open;
    EXPECT_FALSE(parse_any(nested));
    EXPECT_FALSE(parse_any("program @p() { aten_call(target=\"a::b\", arguments=" + nested));
    EXPECT_FALSE(parse_any("program @p() { " + nested));
    EXPECT_FALSE(parse_any("program @p(%x: " + nested));
  }
}

}  // namespace
}  // namespace hostjit
