// SPDX-License-Identifier: Apache-2.0
#include "jit/host_target.h"

#include <gtest/gtest.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/Support/SourceMgr.h>

namespace hostjit {
namespace {

constexpr const char* kTwice = R"(
define void @twice(ptr noalias %x, ptr noalias %out) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %from
  %sum = fadd float %value, %value
  %to = getelementptr float, ptr %out, i64 %i
  store float %sum, ptr %to
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 4096
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
)";

// LLVM by itself keeps to half of them on CPUs of Intel's.
TEST(HostTargetTest, VectorsAreAsWideAsTheCpuIs) {
  HostTarget target;
  if (target.description().find("+avx512vbmi2") == std::string::npos) {
    GTEST_SKIP() << "needs AVX-512 of Ice Lake or later";
  }
  llvm::LLVMContext context;
  llvm::SMDiagnostic error;
  const auto module = llvm::parseAssemblyString(kTwice, error, context);
  ASSERT_TRUE(module) << error.getMessage().str();
  module->setTargetTriple(target.codegen_options().triple);
  module->setDataLayout(target.codegen_options().data_layout);
  target.optimize(*module);
  EXPECT_NE(target.emit_assembly(*module).find("%zmm"), std::string::npos);
}

}  // namespace
}  // namespace hostjit
