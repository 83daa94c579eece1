// SPDX-License-Identifier: Apache-2.0
#include "jit/session.h"

#include <llvm/Config/llvm-config.h>
#if LLVM_VERSION_MAJOR >= 20
#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#endif
#include <llvm/ExecutionEngine/Orc/Debugging/DebuggerSupport.h>
#include <llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderGDB.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>

#include <chrono>
#include <set>
#include <utility>

#include "jit/llvm_check.h"
#include "jit/perf_map.h"
#include "jit/process_symbols.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

int64_t now_in_nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// The session compiles by itself, to time it and to keep one target machine: LLJIT only links.
class NoCompiler : public llvm::orc::IRCompileLayer::IRCompiler {
 public:
  NoCompiler() : IRCompiler(llvm::orc::IRSymbolMapper::ManglingOptions()) {}
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> operator()(llvm::Module&) override {
    return llvm::make_error<llvm::StringError>("modules are compiled before they are added",
                                               llvm::inconvertibleErrorCode());
  }
};

// LLJIT looks up what tells GDB about code by name; hostjit exports no symbol of LLVM.
llvm::Expected<llvm::orc::JITDylibSP> make_debugger_library(llvm::orc::LLJIT& jit) {
  llvm::orc::JITDylib& library = jit.getExecutionSession().createBareJITDylib("debugger");
  llvm::orc::SymbolMap symbols;
  symbols[jit.mangleAndIntern("llvm_orc_registerJITLoaderGDBAllocAction")] = {
      llvm::orc::ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderGDBAllocAction),
      llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  if (auto error = library.define(llvm::orc::absoluteSymbols(std::move(symbols)))) return error;
  return &library;
}

std::unique_ptr<llvm::orc::LLJIT> make_jit(const llvm::TargetMachine& machine) {
  llvm::orc::LLJITBuilder builder;
  builder.setJITTargetMachineBuilder(llvm::orc::JITTargetMachineBuilder(machine.getTargetTriple()));
  builder.setDataLayout(machine.createDataLayout());
  // No static constructors in generated code: a platform would compile support code per library.
  builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
  builder.setLinkProcessSymbolsByDefault(false);
  builder.setProcessSymbolsJITDylibSetup(make_debugger_library);
  builder.setCompileFunctionCreator(
      [](const llvm::orc::JITTargetMachineBuilder&) { return std::make_unique<NoCompiler>(); });
  return HOSTJIT_LLVM_CHECK(builder.create(), "making an ORC session");
}

}  // namespace

LoadedCode::LoadedCode(LoadedCode&& other) noexcept
    : session_(other.session_),
      library_(std::exchange(other.library_, nullptr)),
      addresses_(std::move(other.addresses_)) {}

LoadedCode& LoadedCode::operator=(LoadedCode&& other) noexcept {
  std::swap(session_, other.session_);
  std::swap(library_, other.library_);
  std::swap(addresses_, other.addresses_);
  return *this;
}

LoadedCode::~LoadedCode() {
  if (!library_) return;
  // Unmapping can't fail in a way that somebody could act on.
  llvm::consumeError(session_->removeJITDylib(*library_));
}

JitSession& JitSession::instance() {
  static JitSession& session = *new JitSession;
  return session;
}

JitSession::JitSession() : jit_(make_jit(target_.machine())) {
  if (is_enabled(Knob::kGdb)) {
    // Older LLVMs look the registration up among exported symbols; code runs without a debugger.
    llvm::consumeError(llvm::orc::enableDebuggerSupport(*jit_));
  }
  externs_ = &jit_->getExecutionSession().createBareJITDylib("externs");
  define(*externs_, symbol_addresses(target_.codegen_options().vector_math));
}

void JitSession::define(llvm::orc::JITDylib& library,
                        const std::map<std::string, void*>& functions) {
  llvm::orc::SymbolMap symbols;
  for (const auto& [name, address] : functions) {
    symbols[jit_->mangleAndIntern(name)] = {
        llvm::orc::ExecutorAddr::fromPtr(address),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  }
  HOSTJIT_LLVM_CHECK(library.define(llvm::orc::absoluteSymbols(std::move(symbols))),
                     "defining the symbols that generated code refers to");
}

LoadedCode JitSession::link(const std::vector<std::string>& objects, const std::string& name,
                            const std::vector<std::string>& symbols,
                            const std::map<std::string, void*>& functions) {
  llvm::orc::ExecutionSession& session = jit_->getExecutionSession();
  llvm::orc::JITDylib& library = session.createBareJITDylib(concat(name, "#", num_libraries_++));
  LoadedCode code(session, library);
  library.addToLinkOrder(*externs_);
  define(library, functions);
  std::set<std::string> wanted(symbols.begin(), symbols.end());
  for (const std::string& object : objects) {
    HOSTJIT_LLVM_CHECK(jit_->addObjectFile(library, llvm::MemoryBuffer::getMemBufferCopy(
                                                        object, library.getName())),
                       "adding generated code");
    if (is_enabled(Knob::kPerf)) wanted.merge(global_functions({object, library.getName()}));
  }
  llvm::orc::SymbolLookupSet lookup;
  for (const std::string& symbol : wanted) lookup.add(jit_->mangleAndIntern(symbol));
  const llvm::orc::SymbolMap found = HOSTJIT_LLVM_CHECK(
      session.lookup(llvm::orc::makeJITDylibSearchOrder(&library), std::move(lookup)),
      "linking generated code");
  for (const std::string& symbol : wanted) {
    code.addresses_[symbol] = found.at(jit_->mangleAndIntern(symbol)).getAddress().toPtr<void*>();
  }
  if (is_enabled(Knob::kPerf)) {
    for (const std::string& object : objects) {
      write_perf_map({object, library.getName()}, code.addresses_);
    }
  }
  return code;
}

ScopedTimer::ScopedTimer(double& milliseconds)
    : milliseconds_(milliseconds), start_(now_in_nanoseconds()) {}

ScopedTimer::~ScopedTimer() {
  milliseconds_ += static_cast<double>(now_in_nanoseconds() - start_) * 1e-6;
}

}  // namespace hostjit
