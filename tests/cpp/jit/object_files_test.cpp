// SPDX-License-Identifier: Apache-2.0
#include "jit/object_files.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ir/parser.h"
#include "jit/session.h"
#include "support/knobs.h"
#include "tools/runtime_comparison.h"

namespace hostjit {
namespace {

// A chain of kernels that add 1, 2, ...: enough code for several parts when there are many.
Program chain(int num_kernels) {
  std::string text = "program @chain(%x0: tensor<f32, [4], cpu>) {\n";
  std::string kernels;
  for (int i = 1; i <= num_kernels; ++i) {
    text += concat("  %x", i, " = allocate() : tensor<f32, [4], cpu>\n  launch_kernel(kernel=\"k",
                   i, "\", inputs=[%x", i - 1, "], outputs=[%x", i, "])\n");
    kernels += concat("kernel @k", i, " \"\"\"\ndefine void @k", i, "(ptr %a, ptr %b) {\n",
                      "  %v0 = load <4 x float>, ptr %a, align 4\n");
    for (int step = 1; step <= 100; ++step) {
      kernels +=
          concat("  %v", step, " = fadd <4 x float> %v", step - 1, ", splat (float ", i, ".0)\n");
    }
    kernels += "  store <4 x float> %v100, ptr %b, align 4\n  ret void\n}\n\"\"\"\n";
  }
  return parse_program(text + concat("  return %x", num_kernels, "\n}\n") + kernels);
}

ObjectFiles compile(const Program& program, size_t num_threads) {
  JitSession& session = JitSession::instance();
  const std::lock_guard lock(session.mutex());
  CompileTimings timings;
  return compile_objects(program, session.target(), /*time_nodes=*/false, num_threads, timings);
}

TEST(ObjectFiles, LittleCodeIsOne) { EXPECT_EQ(compile(chain(5), 8).size(), 1u); }

TEST(ObjectFiles, AreTheSameOnAnyNumberOfThreads) {
  const Program program = chain(40);
  const ObjectFiles expected = compile(program, 1);
  EXPECT_GT(expected.size(), 1u);
  for (const size_t num_threads : {1, 2, 3, 8, 100}) {
    EXPECT_EQ(compile(program, num_threads), expected);
  }
}

TEST(ObjectFiles, WorkTogetherOutOfTheCacheToo) {
  std::string directory = std::filesystem::path(::testing::TempDir()) / "hostjit-parts-XXXXXX";
  const ScopedKnobs knobs({.cache_directory = mkdtemp(directory.data())});
  for (const bool is_cached : {false, true}) {
    RunnableProgram program(chain(40));
    EXPECT_EQ(program.module().timings().generate == 0, is_cached);
    const RunnableProgram::Result result = program.run_jit({at::ones({4})});
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(result.outputs.at(0)[3].item<float>(), 1.0f + 100 * 40 * 41 / 2);
  }
  std::filesystem::remove_all(directory);
}

TEST(ObjectFiles, AnErrorOfAnyPartIsThrown) {
  std::string text =
      "program @p(%x: tensor<f32, [4], cpu>) {\n  %y = allocate() : tensor<f32, [4], "
      "cpu>\n  launch_kernel(kernel=\"k\", inputs=[%x], outputs=[%y])\n  return %y\n}\n"
      "kernel @k \"define void @k(ptr %0, ptr %1) { ret i32 0 }\"\n";
  EXPECT_THROW(compile(parse_program(text), 2), Error);
}

TEST(ObjectFiles, ArePackedAndUnpacked) {
  const ObjectFiles objects = {"one", "", std::string("t\0o", 3)};
  const std::string text = pack(objects);
  EXPECT_EQ(unpack(text), objects);
  for (size_t length = 0; length < text.size(); ++length) {
    const std::optional<ObjectFiles> cut = unpack(text.substr(0, length));
    EXPECT_TRUE(!cut || cut->size() < objects.size()) << length;
  }
  EXPECT_EQ(unpack("not an object file"), std::nullopt);
}

}  // namespace
}  // namespace hostjit
