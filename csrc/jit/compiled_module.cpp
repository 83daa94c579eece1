// SPDX-License-Identifier: Apache-2.0
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "codegen/codegen.h"
#include "codegen/kernel_linker.h"
#include "jit/code_parts.h"
#include "jit/compile_context.h"
#include "jit/jit.h"
#include "jit/kernel_libraries.h"
#include "jit/kernel_texts.h"
#include "jit/object_cache.h"
#include "jit/object_files.h"
#include "jit/object_key.h"
#include "jit/packed_kernels.h"
#include "jit/session.h"
#include "runtime/thread_count.h"
#include "support/check.h"
#include "support/dump.h"

namespace hostjit {
namespace {

std::string text_of(const ObjectKey& key) { return {key.begin(), key.end()}; }

std::string module_text(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  module.print(out, nullptr);
  return text;
}

// Before compilation, which may fail because of them.
void dump_kernels(const Program& program) {
  if (!is_enabled(Knob::kDumpKernels)) return;
  for (const auto& [name, kernel] : program.kernels()) {
    if (is_external(kernel)) continue;  // the text is no code
    dump({Knob::kDumpKernels, program.name(), "kernel_" + name, "ll"}, kernel.text);
  }
}

}  // namespace

struct CompiledModule::State {
  State(Program source, bool timed) : program(std::move(source)), time_nodes(timed) {}

  Program program;  // texts and packed kernels are made from it
  bool time_nodes;
  FrameLayout layout;
  CompileTimings timings;
  std::optional<LoadedCode> code;
  MainFunction main = nullptr;
  MainFunction init = nullptr;
  std::span<int64_t> node_times;

  std::mutex kernels_mutex;  // guards what follows; taken before the session's
  std::optional<LoadedKernels> kernels;

  // Emits the program again and hands it to `write`. Takes the session.
  template <class Write>
  auto text(Write write) const {
    JitSession& session = JitSession::instance();
    const std::lock_guard lock(session.mutex());
    CompileContext context(program.name());
    const std::unique_ptr<llvm::Module> module =
        generate(program, context.get(), session.target().codegen_options(), time_nodes);
    return write(session.target(), *module);
  }

  // What `write` makes of the optimised code, part by part.
  template <class Write>
  std::string optimized_text(Write write) const {
    return text([&](HostTarget& target, llvm::Module& module) {
      std::string all;
      const CodeParts parts(module);
      for (size_t part = 0; part < parts.size(); ++part) {
        CompileContext context(program.name());
        const std::unique_ptr<llvm::Module> code =
            generate(program, context.get(), target.codegen_options(), time_nodes);
        parts.keep(*code, part);
        target.optimize(*code);
        all += write(target, *code);
      }
      return all;
    });
  }

  // The code of the program, out of the cache when it has it.
  ObjectFiles objects(HostTarget& target) { return objects(target, timings); }
  ObjectFiles objects(HostTarget& target, CompileTimings& timings) const {
    std::optional<ObjectKey> key;
    const std::optional<ObjectCache> cache = ObjectCache::of_knobs();
    if (cache) {
      const ScopedTimer timer(timings.cache);
      key = object_key(program, target.description() + (time_nodes ? " node times" : ""));
      if (key) {
        const std::optional<std::string> found = cache->find(*key);
        std::optional<ObjectFiles> unpacked = found ? unpack(*found) : std::nullopt;
        if (unpacked) return *std::move(unpacked);
      }
    }
    ObjectFiles made = compile_objects(program, target, time_nodes, num_threads(), timings);
    if (key) {
      const ScopedTimer timer(timings.cache);
      cache->store(*key, pack(made));
    }
    return made;
  }

  // A process that keeps to few threads keeps to them here.
  static size_t num_threads() {
    const size_t cores = std::max(std::thread::hardware_concurrency(), 1u);
    return std::min(cores, thread_count());
  }
};

CompiledModule::CompiledModule(std::unique_ptr<State> state) : state_(std::move(state)) {}
CompiledModule::~CompiledModule() = default;

template <class Objects>
std::unique_ptr<CompiledModule> CompiledModule::link_objects(std::unique_ptr<State> state,
                                                             Objects make_objects) {
  const Program& program = state->program;
  const bool time_nodes = state->time_nodes;
  CodeInterface interface = code_interface(program);
  {
    JitSession& session = JitSession::instance();
    const std::lock_guard lock(session.mutex());
    const std::optional<ObjectFiles> objects = make_objects(session.target());
    if (!objects) return nullptr;
    std::vector<std::string> symbols = {interface.main_symbol};
    if (!interface.init_symbol.empty()) symbols.push_back(interface.init_symbol);
    if (time_nodes) symbols.push_back(interface.times_symbol);
    const ScopedTimer timer(state->timings.link);
    state->code = session.link(*objects, program.name(), symbols, external_functions(program));
  }
  const auto function = [&](const std::string& symbol) {
    return reinterpret_cast<MainFunction>(state->code->find(symbol));
  };
  state->main = function(interface.main_symbol);
  if (!interface.init_symbol.empty()) state->init = function(interface.init_symbol);
  if (time_nodes) {
    auto* first = static_cast<int64_t*>(state->code->find(interface.times_symbol));
    state->node_times = {first, num_node_times(program)};
  }
  state->layout = std::move(interface.layout);
  std::unique_ptr<CompiledModule> linked(new CompiledModule(std::move(state)));
  if (!time_nodes) linked->dump_texts();
  return linked;
}

std::unique_ptr<CompiledModule> CompiledModule::compile(const Program& program, bool time_nodes) {
  auto state = std::make_unique<State>(program.clone(), time_nodes);
  if (!time_nodes) dump_kernels(program);
  State& made = *state;
  return link_objects(std::move(state), [&made](HostTarget& target) {
    return std::optional<ObjectFiles>(made.objects(target));
  });
}

std::unique_ptr<CompiledModule> CompiledModule::link(const Program& program,
                                                     const PortableCode& code) {
  return link_objects(std::make_unique<State>(program.clone(), /*timed=*/false),
                      [&](HostTarget& target) -> std::optional<ObjectFiles> {
                        const auto key = object_key(program, target.description());
                        if (!key || text_of(*key) != code.key) return std::nullopt;
                        std::optional<ObjectFiles> objects = unpack(code.objects);
                        HOSTJIT_CHECK(objects, "program '", program.name(),
                                      "': the code for it is no code");
                        return objects;
                      });
}

PortableCode CompiledModule::portable_code() const {
  JitSession& session = JitSession::instance();
  const std::lock_guard lock(session.mutex());
  const auto key = object_key(state_->program, session.target().description());
  CompileTimings timings;  // what the code took that runs stays as it was
  return {key ? text_of(*key) : "", pack(state_->objects(session.target(), timings))};
}

std::string host_description() {
  JitSession& session = JitSession::instance();
  const std::lock_guard lock(session.mutex());
  return session.target().description();
}

void CompiledModule::dump_texts() const {
  const Program& program = state_->program;
  if (is_enabled(Knob::kDumpKernels)) {
    const std::string kernel_prefix = "kernel.";
    for (const KernelText& kernel : state_->text(kernel_texts)) {
      std::string stage = kernel.symbol.substr(program.name().size() + 1);
      if (stage.starts_with(kernel_prefix)) {
        stage.replace(0, kernel_prefix.size(), "kernel_");
      } else {
        dump({Knob::kDumpKernels, program.name(), stage, "ll"}, kernel.llvm_ir);
      }
      dump({Knob::kDumpKernels, program.name(), stage, "s"}, kernel.assembly);
    }
  }
  if (is_enabled(Knob::kDumpLlvmIr)) {
    dump({Knob::kDumpLlvmIr, program.name(), "main", "ll"}, llvm_ir());
  }
  if (is_enabled(Knob::kDumpAsm)) {
    dump({Knob::kDumpAsm, program.name(), "main", "s"}, assembly());
  }
}

MainFunction CompiledModule::main() const { return state_->main; }
MainFunction CompiledModule::init() const { return state_->init; }
const FrameLayout& CompiledModule::layout() const { return state_->layout; }
std::span<int64_t> CompiledModule::node_times() const { return state_->node_times; }
const CompileTimings& CompiledModule::timings() const { return state_->timings; }

const std::map<std::string, PackedKernel>& CompiledModule::packed_kernels() const {
  State& state = *state_;
  const std::lock_guard lock(state.kernels_mutex);
  if (!state.kernels) state.kernels = load_packed_kernels(state.program);
  return state.kernels->kernels;
}

std::string CompiledModule::llvm_ir() const {
  return state_->optimized_text(
      [](HostTarget&, const llvm::Module& module) { return module_text(module); });
}

std::string CompiledModule::unoptimized_llvm_ir() const {
  return state_->text([](HostTarget&, const llvm::Module& module) { return module_text(module); });
}

std::string CompiledModule::assembly() const {
  return state_->optimized_text(
      [](HostTarget& target, llvm::Module& module) { return target.emit_assembly(module); });
}

}  // namespace hostjit
