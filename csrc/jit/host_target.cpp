// SPDX-License-Identifier: Apache-2.0
#include "jit/host_target.h"

#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>

#include "codegen/kernel_linker.h"
#include "jit/llvm_check.h"
#include "jit/process_symbols.h"

namespace hostjit {
namespace {

std::unique_ptr<llvm::TargetMachine> make_machine() {
  auto builder = HOSTJIT_LLVM_CHECK(llvm::orc::JITTargetMachineBuilder::detectHost(),
                                    "finding the CPU of this machine");
  // What JITLink links: it makes stubs for functions that are far away.
  builder.setRelocationModel(llvm::Reloc::PIC_);
  builder.setCodeModel(llvm::CodeModel::Small);
  builder.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
  // LLVM keeps to 256 bits on Intel's, for the clock of the first that had more. From Ice Lake on
  // the clock hardly falls, and vectors of 512 bits do twice the work.
  if (builder.getFeatures().getString().find("+avx512vbmi2") != std::string::npos) {
    builder.addFeatures({"-prefer-256-bit"});
  }
  return HOSTJIT_LLVM_CHECK(builder.createTargetMachine(), "making a target machine");
}

// Optimised kernels longer than this are called; the call is nothing beside their work.
constexpr unsigned kMostInlinedInstructions = 400;
// When inlining made main longer by so much, the launches that follow are calls: instruction
// selection takes time that grows faster than a block does.
constexpr unsigned kMostInlinedInTotal = 2000;

// Makes one function of what inlining brought together: loads of what was just stored, repeated
// address arithmetic.
constexpr const char* kInlinePipeline =
    "always-inline,function(early-cse<memssa>,instcombine<no-verify-fixpoint>,dse,simplifycfg),"
    "globaldce";

// Returns whether there are any.
bool mark_launches_to_inline(llvm::Module& module) {
  unsigned total = 0;
  for (llvm::Function& caller : module) {
    for (llvm::Instruction& instruction : llvm::instructions(caller)) {
      auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction);
      llvm::Function* kernel = call ? call->getCalledFunction() : nullptr;
      if (!kernel || kernel->isDeclaration() || !is_kernel(*kernel)) continue;
      const unsigned length = kernel->getInstructionCount();
      const bool is_short = length <= kMostInlinedInstructions || kernel->hasOneUse();
      if (!is_short || total + length > kMostInlinedInTotal) continue;
      total += length;
      kernel->removeFnAttr(llvm::Attribute::NoInline);
      call->addFnAttr(llvm::Attribute::AlwaysInline);
    }
  }
  return total > 0;
}

bool has_feature(const llvm::TargetMachine& machine, const std::string& feature) {
  const std::string features = "," + machine.getTargetFeatureString().str() + ",";
  return features.find(",+" + feature + ",") != std::string::npos;
}

// Instruction sets with Sleef functions, the widest first.
std::vector<VectorIsa> vector_isas(const llvm::TargetMachine& machine) {
  const auto has = [&](const std::string& feature) { return has_feature(machine, feature); };
  std::vector<VectorIsa> isas;
  if (has("avx512f")) isas.push_back({"avx512f", 512});
  if (has("avx2") && has("fma")) isas.push_back({"avx2", 256});
  if (machine.getTargetTriple().isAArch64()) isas.push_back({"advsimd", 128});
  return isas;
}

}  // namespace

HostTarget::HostTarget() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  machine_ = make_machine();
  options_.triple = machine_->getTargetTriple();
  options_.data_layout = machine_->createDataLayout();
  for (const VectorIsa& isa : vector_isas(*machine_)) {
    options_.vector_bits = std::max(options_.vector_bits, isa.bits);
  }
  options_.has_pair_dots = options_.vector_bits == 512 && has_feature(*machine_, "avx512bf16");
  options_.vector_math = available_variants(vector_math_candidates(vector_isas(*machine_)));
}

HostTarget HostTarget::another() const { return {make_machine(), options_}; }

std::string HostTarget::description() const {
  std::string text =
      concat(machine_->getTargetTriple().str(), " ", machine_->getTargetCPU().str(), " ",
             machine_->getTargetFeatureString().str(), " ",
             options_.data_layout.getStringRepresentation(), " ", options_.vector_bits);
  for (const VectorMathVariant& variant : options_.vector_math) text += " " + variant.symbol;
  return text;
}

void HostTarget::optimize(llvm::Module& module) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = true;
  tuning.SLPVectorization = true;
  tuning.LoopUnrolling = true;
  llvm::PassBuilder builder(machine_.get(), tuning);
  llvm::LoopAnalysisManager loop_analyses;
  llvm::FunctionAnalysisManager function_analyses;
  llvm::CGSCCAnalysisManager scc_analyses;
  llvm::ModuleAnalysisManager module_analyses;
  builder.registerModuleAnalyses(module_analyses);
  builder.registerCGSCCAnalyses(scc_analyses);
  builder.registerFunctionAnalyses(function_analyses);
  builder.registerLoopAnalyses(loop_analyses);
  builder.crossRegisterProxies(loop_analyses, function_analyses, scc_analyses, module_analyses);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, module_analyses);
  if (mark_launches_to_inline(module)) {
    llvm::ModulePassManager passes;
    HOSTJIT_LLVM_CHECK(builder.parsePassPipeline(passes, kInlinePipeline), "making a pipeline");
    passes.run(module, module_analyses);
  }
  define_scalar_math(module, options_.vector_math);
}

llvm::SmallVector<char, 0> HostTarget::emit_object(llvm::Module& module) {
  return emit(module, llvm::CodeGenFileType::ObjectFile);
}

std::string HostTarget::emit_assembly(llvm::Module& module) {
  const llvm::SmallVector<char, 0> text = emit(module, llvm::CodeGenFileType::AssemblyFile);
  return std::string(text.data(), text.size());
}

llvm::SmallVector<char, 0> HostTarget::emit(llvm::Module& module, llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  const bool is_impossible = machine_->addPassesToEmitFile(passes, out, nullptr, type);
  HOSTJIT_ICHECK(!is_impossible, "LLVM can't emit code for ", machine_->getTargetTriple().str());
  passes.run(module);
  return bytes;
}

}  // namespace hostjit
