// SPDX-License-Identifier: Apache-2.0
#include "support/knobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/check.h"
#include "support/dump.h"
#include "support/option_list.h"

namespace hostjit {
namespace {

using Words = std::vector<OptionWord>;
using Strings = std::vector<std::string>;

std::string error_of(const auto& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(OptionList, TrimsNamesAndArgumentsAndSkipsEmptyWords) {
  EXPECT_EQ(parse_option_list("V", "  a , b( x ,y ),, c() ,"),
            (Words{{"a", {}}, {"b", {"x", "y"}}, {"c", {}}}));
  EXPECT_EQ(parse_option_list("V", " "), Words{});
}

TEST(OptionList, KeepsParenthesesInsideArguments) {
  EXPECT_EQ(parse_option_list("V", "a(f(x, y), z), b"),
            (Words{{"a", {"f(x, y)", "z"}}, {"b", {}}}));
}

TEST(OptionList, NamesTheVariableAndTheTextOfABadParenthesis) {
  EXPECT_EQ(error_of([] { parse_option_list("V", "a(b"); }), "V: '(' without ')' in 'a(b'");
  EXPECT_EQ(error_of([] { parse_option_list("V", "a)b("); }), "V: ')' without '(' in 'a)b('");
  EXPECT_EQ(error_of([] { parse_option_list("V", "a(b)c"); }),
            "V: expected ',' after ')' in 'a(b)c'");
  EXPECT_EQ(error_of([] { parse_option_list("V", "(b)"); }),
            "V: expected a name before '(' in '(b)'");
}

TEST(Knobs, HaveTheDefaultsOfTheList) {
  EXPECT_TRUE(compile_enabled());
  EXPECT_TRUE(host_ir_jit_enabled());
  EXPECT_TRUE(is_enabled(Knob::kGdb));
  EXPECT_FALSE(is_enabled(Knob::kPerf));
  EXPECT_FALSE(is_enabled(Knob::kDumpHostIr));
  EXPECT_EQ(knob_integer(Knob::kRecompileLimit), 8);
}

TEST(Knobs, HoldForAScope) {
  {
    const ScopedKnobs outer({.enable = "perf", .disable = "host_ir_jit, passes(plan_memory)"});
    EXPECT_FALSE(host_ir_jit_enabled());
    EXPECT_TRUE(is_enabled(Knob::kPerf));
    EXPECT_EQ(knob_arguments(Knob::kPasses), Strings{"plan_memory"});
    {
      const ScopedKnobs inner({.enable = "host_ir_jit"});
      EXPECT_TRUE(host_ir_jit_enabled());
      EXPECT_TRUE(is_enabled(Knob::kPerf));
    }
    EXPECT_FALSE(host_ir_jit_enabled());
  }
  EXPECT_TRUE(host_ir_jit_enabled());
  EXPECT_FALSE(is_enabled(Knob::kPerf));
}

TEST(Knobs, CompilingIsSwitchedForAScope) {
  {
    const ScopedKnobs off({.disable = "compile"});
    EXPECT_FALSE(compile_enabled());
    EXPECT_TRUE(host_ir_jit_enabled());
    const ScopedKnobs on({.enable = "compile"});
    EXPECT_TRUE(compile_enabled());
  }
  EXPECT_TRUE(compile_enabled());
}

TEST(Knobs, MayBePoppedInAnyOrder) {
  const uint64_t first = push_knobs({.disable = "host_ir_jit"});
  const uint64_t second = push_knobs({.enable = "perf"});
  pop_knobs(first);
  EXPECT_TRUE(host_ir_jit_enabled());
  EXPECT_TRUE(is_enabled(Knob::kPerf));
  pop_knobs(second);
  EXPECT_FALSE(is_enabled(Knob::kPerf));
}

TEST(Knobs, MayBeSwitchedByManyThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 200; ++j) {
        const ScopedKnobs scope({.disable = "host_ir_jit"});
        EXPECT_FALSE(host_ir_jit_enabled());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(host_ir_jit_enabled());
}

TEST(Knobs, RecompileLimitIsAnIntegerOrNone) {
  {
    const ScopedKnobs scope({.enable = "recompile_limit(32)"});
    EXPECT_EQ(knob_integer(Knob::kRecompileLimit), 32);
  }
  const ScopedKnobs scope({.disable = "recompile_limit"});
  EXPECT_EQ(knob_integer(Knob::kRecompileLimit), std::nullopt);
}

TEST(Knobs, ErrorsSayWhatIsValidAndChangeNothing) {
  EXPECT_EQ(error_of([] { push_knobs({.enable = "perf, jitt"}); }),
            "HOSTJIT_ENABLE: unknown option 'jitt', expected one of: compile, host_ir_jit, passes, "
            "recompile_limit, object_cache, gdb, perf, cuda_graphs, cuda_graphs_always, "
            "spread_streams, nvtx, profile_ranges");
  EXPECT_FALSE(is_enabled(Knob::kPerf));
  EXPECT_EQ(error_of([] { push_knobs({.dump = "perf"}); }),
            "HOSTJIT_DUMP: unknown option 'perf', expected one of: capture, shapes, host_ir, "
            "host_ir_passes, kernels, llvm_ir, asm");
  EXPECT_EQ(error_of([] { push_knobs({.enable = "gdb(x)"}); }),
            "HOSTJIT_ENABLE: option 'gdb' has argument 'x', expected none");
  EXPECT_EQ(error_of([] { push_knobs({.enable = "passes(x)"}); }),
            "HOSTJIT_ENABLE: option 'passes' has argument 'x', expected none");
  EXPECT_EQ(error_of([] { push_knobs({.enable = "recompile_limit"}); }),
            "HOSTJIT_ENABLE: option 'recompile_limit' has 0 arguments, expected one integer");
  EXPECT_EQ(error_of([] { push_knobs({.enable = "recompile_limit(1x)"}); }),
            "HOSTJIT_ENABLE: option 'recompile_limit' has argument '1x', expected a non-negative "
            "integer");
  EXPECT_EQ(error_of([] { push_knobs({.enable = "gdb", .disable = "gdb"}); }),
            "HOSTJIT_DISABLE: option 'gdb' is given twice");
  EXPECT_EQ(error_of([] { push_knobs({.dump = "asm(a, b)"}); }),
            "HOSTJIT_DUMP: option 'asm' has 2 arguments, expected at most one directory");
}

TEST(KnobsDeathTest, ReadTheEnvironmentOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_with_state = [] {
    // The first use is in this child: it starts anew.
    setenv("HOSTJIT_DISABLE", " host_ir_jit ", 1);
    const bool first = host_ir_jit_enabled();
    setenv("HOSTJIT_DISABLE", "", 1);
    std::exit(first ? 1 : host_ir_jit_enabled() ? 2 : 7);
  };
  EXPECT_EXIT(exit_with_state(), ::testing::ExitedWithCode(7), "");
}

TEST(KnobsDeathTest, MalformedEnvironmentThrowsAtEachUse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_with_errors = [] {
    setenv("HOSTJIT_DUMP", "host_irr", 1);
    const std::string first = error_of([] { host_ir_jit_enabled(); });
    const std::string second = error_of([] { host_ir_jit_enabled(); });
    std::exit(first == second && first.find("unknown option 'host_irr'") != first.npos ? 7 : 1);
  };
  EXPECT_EXIT(exit_with_errors(), ::testing::ExitedWithCode(7), "");
}

TEST(Knobs, RowsSayWhatHolds) {
  const ScopedKnobs scope(
      {.disable = "passes(a, b)", .dump_directory = "dumps", .cache_directory = "objects"});
  const std::vector<KnobRow> rows = knob_rows();
  const auto row = [&](const std::string& name) {
    for (const KnobRow& candidate : rows) {
      if (candidate.name == name) return candidate;
    }
    return KnobRow{};
  };
  EXPECT_EQ(row("passes").current, "off (a, b)");
  EXPECT_EQ(row("passes").default_value, "on");
  EXPECT_EQ(row("recompile_limit").current, "on (8)");
  EXPECT_EQ(row("llvm_ir").variable, "HOSTJIT_DUMP");
  EXPECT_EQ(row("").current, "dumps");
  EXPECT_EQ(rows.back().variable, "HOSTJIT_CACHE_DIR");
  EXPECT_EQ(rows.back().current, "objects");
}

#ifdef HOSTJIT_TEST_DATA_DIR
TEST(Knobs, ReferencePageIsUpToDate) {
  const std::filesystem::path page =
      std::filesystem::path(HOSTJIT_TEST_DATA_DIR) / "../docs/reference/knobs.md";
  std::ifstream file(page);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), knob_reference_page()) << "write knob_reference_page() to " << page;
}
#endif

class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& name)
      : path_(std::filesystem::path(::testing::TempDir()) / name) {
    std::filesystem::remove_all(path_);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Dump, WritesNumberedFilesIntoADirectory) {
  const TemporaryDirectory directory("hostjit_dump_files");
  const ScopedKnobs scope({.dump = "host_ir", .dump_directory = directory.path().string()});
  dump({Knob::kDumpHostIr, "a/b", "after x", "hir"}, "text\n");
  dump_unchanged({Knob::kDumpHostIr, "a/b", "after y", "hir"});
  dump({Knob::kDumpAsm, "a/b", "off", "s"}, "text\n");
  Strings names;
  std::string texts;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].substr(4), "_a_b_after_x.hir");
  EXPECT_EQ(names[1].substr(4), "_a_b_after_y.hir");
  for (const std::string& name : names) {
    std::ifstream file(directory.path() / name);
    texts += std::string(std::istreambuf_iterator<char>(file), {});
  }
  EXPECT_EQ(texts, "text\n// (unchanged)\n");
}

TEST(Dump, TakesTheDirectoryOfTheKnobFirst) {
  const TemporaryDirectory directory("hostjit_dump_argument");
  const ScopedKnobs scope({.dump = concat("asm(", directory.path().string(), ")")});
  EXPECT_EQ(dump_directory(Knob::kDumpAsm), directory.path().string());
  EXPECT_EQ(dump_directory(Knob::kDumpHostIr), "");
}

TEST(Dump, PrintsToStderrWithoutADirectory) {
  const ScopedKnobs scope({.dump = "llvm_ir"});
  ::testing::internal::CaptureStderr();
  dump({Knob::kDumpLlvmIr, "p", "main", "ll"}, "define void @main()");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "; hostjit: p: main\ndefine void @main()\n");
}

TEST(Dump, SaysWhichFileItCannotWrite) {
  const ScopedKnobs scope({.dump = "asm(/dev/null/x)"});
  const std::string error = error_of([] { dump({Knob::kDumpAsm, "p", "main", "s"}, ""); });
  EXPECT_TRUE(error.starts_with("HOSTJIT_DUMP: cannot write /dev/null/x/")) << error;
}

}  // namespace
}  // namespace hostjit
