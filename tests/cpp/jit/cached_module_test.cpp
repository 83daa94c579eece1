// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "ir/parser.h"
#include "support/knobs.h"
#include "tools/runtime_comparison.h"

namespace hostjit {
namespace {

namespace fs = std::filesystem;

// Doubles, and fails at its ATen call when %i is out of range.
std::string program_text(const std::string& location) {
  return R"(
program @cached(%x: tensor<f32, [4], cpu>, %i: tensor<i64, [2], cpu>) {
  %y = allocate() : tensor<f32, [4], cpu>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%y])
  %z = aten_call(target="aten::index_select", inputs=[%y, %i], arguments=[$0, 0, $1]) : tensor<f32, [2], cpu> loc(")" +
         location + R"(")
  return %y, %z
}
kernel @k """
define void @k(ptr %a, ptr %b) {
  %v = load <4 x float>, ptr %a, align 4
  %w = fadd <4 x float> %v, %v
  store <4 x float> %w, ptr %b, align 4
  ret void
}
"""
)";
}

class CachedModuleTest : public ::testing::Test {
 protected:
  CachedModuleTest()
      : directory_(fs::path(::testing::TempDir()) / "hostjit-cached-module-XXXXXX"),
        knobs_({.cache_directory = mkdtemp(directory_.data())}) {}
  ~CachedModuleTest() override { fs::remove_all(directory_); }

  std::string directory_;

 private:
  ScopedKnobs knobs_;
};

void expect_right(RunnableProgram& program) {
  const at::Tensor indices = at::ones({2}, at::kLong);
  const RunnableProgram::Result result = program.run_jit({at::full({4}, 3.0f), indices});
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.outputs.at(0)[3].item<float>(), 6.0f);
  EXPECT_EQ(result.outputs.at(1)[1].item<float>(), 6.0f);
}

TEST_F(CachedModuleTest, LLVMDoesNotRunForCodeThatIsThere) {
  RunnableProgram first(parse_program(program_text("model.py:1")));
  EXPECT_GT(first.module().timings().generate, 0);
  expect_right(first);
  RunnableProgram second(parse_program(program_text("model.py:2")));
  EXPECT_GT(second.module().timings().cache, 0);
  EXPECT_EQ(second.module().timings().emit, 0);
  EXPECT_EQ(second.module().timings().optimize, 0);
  EXPECT_EQ(second.module().timings().generate, 0);
  expect_right(second);
}

TEST_F(CachedModuleTest, CodeThatTimesItsNodesIsAnother) {
  const Program program = parse_program(program_text("model.py:1"));
  const auto plain = CompiledModule::compile(program);
  const auto timed = CompiledModule::compile(program, /*time_nodes=*/true);
  EXPECT_GT(timed->timings().generate, 0);
  EXPECT_TRUE(plain->node_times().empty());
  EXPECT_EQ(timed->node_times().size(), 2 * program.body().size() + 3);
  EXPECT_EQ(plain->llvm_ir().find("hostjit_now"), std::string::npos);
  EXPECT_NE(timed->llvm_ir().find("hostjit_now"), std::string::npos);
  EXPECT_EQ(CompiledModule::compile(program, /*time_nodes=*/true)->timings().generate, 0);
  EXPECT_TRUE(CompiledModule::compile(program)->node_times().empty());
}

TEST_F(CachedModuleTest, TextsAreMadeWhenAskedFor) {
  const auto first = CompiledModule::compile(parse_program(program_text("model.py:1")));
  const auto second = CompiledModule::compile(parse_program(program_text("model.py:1")));
  EXPECT_EQ(second->timings().generate, 0);
  EXPECT_NE(second->llvm_ir().find("fadd <4 x float>"), std::string::npos);
  EXPECT_EQ(second->llvm_ir(), first->llvm_ir());
  EXPECT_EQ(second->unoptimized_llvm_ir(), first->unoptimized_llvm_ir());
  EXPECT_EQ(second->assembly(), first->assembly());
  EXPECT_EQ(second->packed_kernels().size(), 1u);
}

TEST_F(CachedModuleTest, ErrorsNameTheLineOfTheirOwnProgram) {
  const at::Tensor out_of_range = at::full({2}, 9, at::kLong);
  for (const std::string location : {"model.py:1", "model.py:2"}) {
    RunnableProgram program(parse_program(program_text(location)));
    const RunnableProgram::Result result = program.run_jit({at::ones({4}), out_of_range});
    EXPECT_NE(result.error.find(location), std::string::npos) << result.error;
  }
}

TEST_F(CachedModuleTest, DamagedCodeIsCompiledAgainAndReplaced) {
  CompiledModule::compile(parse_program(program_text("")));
  const fs::path entry = fs::directory_iterator(directory_)->path();
  fs::resize_file(entry, fs::file_size(entry) - 1);
  RunnableProgram again(parse_program(program_text("")));
  EXPECT_GT(again.module().timings().generate, 0);
  expect_right(again);
  RunnableProgram after(parse_program(program_text("")));
  EXPECT_EQ(after.module().timings().generate, 0);
  expect_right(after);
}

TEST_F(CachedModuleTest, AProgramThatDoesNotCompileLeavesNothing) {
  std::string text = program_text("");
  text.replace(text.find("ret void"), 8, "ret i32 0");
  EXPECT_THROW(CompiledModule::compile(parse_program(text)), Error);
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(CachedModuleTest, CodeOfAnotherProcessIsLinkedWhereItFits) {
  const ScopedKnobs off({.disable = "object_cache"});
  const auto compiled = CompiledModule::compile(parse_program(program_text("model.py:1")));
  const PortableCode code = compiled->portable_code();
  EXPECT_EQ(code.key.size(), 32u);
  const auto linked = CompiledModule::link(parse_program(program_text("model.py:2")), code);
  ASSERT_NE(linked, nullptr);
  EXPECT_NE(linked->main(), nullptr);
  EXPECT_EQ(linked->timings().emit + linked->timings().optimize + linked->timings().generate, 0);
  EXPECT_EQ(linked->portable_code().objects, code.objects);

  std::string other = program_text("");
  other.replace(other.find("fadd"), 4, "fmul");
  EXPECT_EQ(CompiledModule::link(parse_program(other), code), nullptr);
  EXPECT_EQ(CompiledModule::link(parse_program(program_text("")), {"", code.objects}), nullptr);
  EXPECT_THROW(CompiledModule::link(parse_program(program_text("")), {code.key, "no code"}), Error);
}

TEST_F(CachedModuleTest, NothingIsKeptWhileItIsOff) {
  const ScopedKnobs off({.disable = "object_cache"});
  for (int i = 0; i < 2; ++i) {
    RunnableProgram program(parse_program(program_text("")));
    EXPECT_GT(program.module().timings().generate, 0);
    expect_right(program);
  }
  EXPECT_TRUE(fs::is_empty(directory_));
}

}  // namespace
}  // namespace hostjit
