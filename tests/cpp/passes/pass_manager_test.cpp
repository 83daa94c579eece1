// SPDX-License-Identifier: Apache-2.0
#include "passes/pass_manager.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/parser.h"
#include "ir/printer.h"
#include "passes/memory_plan_report.h"
#include "passes/pipeline.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

constexpr const char* kText = R"(program @p(%x: tensor<f32, [16], cpu>) {
  %a = allocate() : tensor<f32, [16], cpu>
  copy(source=%x, out=%a)
  %b = allocate() : tensor<f32, [4], cpu>
  fill(value=1.0, out=%b)
  %y = allocate() : tensor<f32, [16], cpu>
  launch_kernel(kernel="k", inputs=[%a, %b], outputs=[%y])
  return %y
}

kernel @k """
define void @k(ptr %0, ptr %1, ptr %2) { ret void }"""
)";

std::vector<std::string> names_of(const std::vector<PassTiming>& timings) {
  std::vector<std::string> names;
  for (const PassTiming& timing : timings) names.emplace_back(timing.name);
  return names;
}

template <class Exception>
std::string message_of(const auto& function) {
  try {
    function();
  } catch (const Exception& error) {
    return error.what();
  }
  return "no exception";
}

TEST(PassManager, TimesEachPassAndSaysWhatChanged) {
  Program program = parse_program(kText);
  const std::vector<PassTiming> timings = run_pipeline(program);
  EXPECT_EQ(names_of(timings),
            (std::vector<std::string>{"canonicalise_views", "remove_dead_ops", "hoist_constants",
                                      "spread_streams", "insert_deallocations", "plan_memory",
                                      "cut_graphs"}));
  EXPECT_FALSE(timings[0].changed);
  EXPECT_FALSE(timings[1].changed);
  EXPECT_TRUE(timings[2].changed);
  EXPECT_FALSE(timings[3].changed);
  EXPECT_TRUE(timings[4].changed);
  EXPECT_TRUE(timings[5].changed);
  for (const PassTiming& timing : timings) EXPECT_GT(timing.microseconds, 0);
}

TEST(PassManager, NamesThePassThatBreaksAProgram) {
  Program program = parse_program(kText);
  const Pass pass{"forget_everything", "", [](Program& broken) { broken.body().clear(); }};
  const std::string message = message_of<InternalError>([&] { run_passes(program, {&pass, 1}); });
  EXPECT_NE(message.find("internal error: pass 'forget_everything' broke program 'p': program 'p': "
                         "output 0 is %y, which is not defined"),
            std::string::npos)
      << message;
}

TEST(PassManager, RefusesAProgramThatWasWrongBefore) {
  Program program = parse_program(kText);
  program.body().clear();
  EXPECT_EQ(message_of<Error>([&] { run_pipeline(program); }),
            "program 'p': output 0 is %y, which is not defined");
}

TEST(PassManager, DumpsEachStageOnce) {
  Program program = parse_program(kText);
  const ScopedKnobs knobs({.dump = "host_ir_passes, host_ir"});
  testing::internal::CaptureStderr();
  run_pipeline(program);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with(std::string("// hostjit: p: before_passes\n") + kText +
                               "// hostjit: p: after_canonicalise_views\n// (unchanged)\n"
                               "// hostjit: p: after_remove_dead_ops\n// (unchanged)\n"
                               "// hostjit: p: after_hoist_constants\nprogram @p("))
      << text;
  EXPECT_TRUE(text.ends_with("// hostjit: p: host_ir\n" + to_string(program))) << text;
}

TEST(Pipeline, LeavesOutDisabledPasses) {
  Program program = parse_program(kText);
  {
    const ScopedKnobs knobs({.disable = "passes(plan_memory, hoist_constants)"});
    EXPECT_EQ(names_of(run_pipeline(program)),
              (std::vector<std::string>{"canonicalise_views", "remove_dead_ops", "spread_streams",
                                        "insert_deallocations", "cut_graphs"}));
  }
  {
    const ScopedKnobs knobs({.disable = "passes"});
    EXPECT_TRUE(run_pipeline(program).empty());
  }
  const ScopedKnobs knobs({.disable = "passes(plan)"});
  EXPECT_EQ(message_of<Error>([&] { run_pipeline(program); }),
            "unknown pass 'plan', expected one of: canonicalise_views, remove_dead_ops, "
            "hoist_constants, spread_streams, insert_deallocations, plan_memory, cut_graphs");
}

TEST(Pipeline, FindsEachPassByItsName) {
  for (const Pass& pass : default_pipeline()) EXPECT_EQ(find_pass(pass.name).run, pass.run);
}

TEST(MemoryPlanReport, ListsBuffersAndTotals) {
  Program program = parse_program(kText);
  run_pipeline(program);
  EXPECT_EQ(memory_plan_report(program),
            "memory plan of p: 2 of 3 buffers in the arena\n"
            "buffer  type                    bytes  offset  ops\n"
            "%b      tensor<f32, [4], cpu>   16     0       every call\n"
            "%a      tensor<f32, [16], cpu>  64     64      0..4\n"
            "%y      tensor<f32, [16], cpu>  64     output  2..5\n"
            "arena 128 bytes, lower bound 80 bytes (1.600x), without sharing 80 bytes\n");
}

TEST(MemoryPlanReport, HasALineForTheArenaOfEachDevice) {
  Program program = parse_program(R"(program @p(%x: tensor<f32, [16], cuda:0>) {
  %a = allocate() : tensor<f32, [16], cuda:0>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%a], grid=[1, 1, 1], block=[32, 1, 1])
  %y = allocate() : tensor<f32, [16], cuda:0>
  launch_kernel(kernel="k", inputs=[%a], outputs=[%y], grid=[1, 1, 1], block=[32, 1, 1])
  return %y
}

kernel @k ptx(entry="k", parameters=[ptr, ptr]) """
"""
)");
  run_pipeline(program);
  EXPECT_EQ(memory_plan_report(program),
            "memory plan of p: 1 of 2 buffers in the arena\n"
            "buffer  type                       bytes  offset  ops\n"
            "%a      tensor<f32, [16], cuda:0>  64     0       0..4\n"
            "%y      tensor<f32, [16], cuda:0>  64     output  2..5\n"
            "arena 0 bytes, lower bound 0 bytes, without sharing 0 bytes\n"
            "arena of cuda:0 256 bytes, lower bound 64 bytes (4.000x), without sharing 64 bytes\n");
}

}  // namespace
}  // namespace hostjit
