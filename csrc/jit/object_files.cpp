// SPDX-License-Identifier: Apache-2.0
#include "jit/object_files.h"

#include <llvm/Support/Threading.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "jit/code_parts.h"
#include "jit/compile_context.h"
#include "jit/session.h"

namespace hostjit {
namespace {

std::string compile(HostTarget& target, llvm::Module& module, const CompileContext& context,
                    CompileTimings& timings) {
  {
    const ScopedTimer timer(timings.optimize);
    target.optimize(module);
  }
  const ScopedTimer timer(timings.generate);
  const llvm::SmallVector<char, 0> object = target.emit_object(module);
  context.check();
  return std::string(object.data(), object.size());
}

// Compiles parts until none is left. Each has a context of its own, so the module is made anew.
class PartCompiler {
 public:
  PartCompiler(const Program& program, bool time_nodes, const CodeParts& parts)
      : program_(program), time_nodes_(time_nodes), parts_(parts), objects_(parts.size()) {}

  void work(HostTarget& target) noexcept {
    CompileTimings timings;
    try {
      for (size_t part = next_++; part < parts_.size(); part = next_++) {
        CompileContext context(program_.name());
        std::unique_ptr<llvm::Module> module;
        {
          const ScopedTimer timer(timings.emit);
          module = generate(program_, context.get(), target.codegen_options(), time_nodes_);
          parts_.keep(*module, part);
        }
        objects_[part] = compile(target, *module, context, timings);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    timings_.emit += timings.emit;
    timings_.optimize += timings.optimize;
    timings_.generate += timings.generate;
  }

  // After all work.
  ObjectFiles finish(CompileTimings& timings) {
    if (error_) std::rethrow_exception(error_);
    timings.emit += timings_.emit;
    timings.optimize += timings_.optimize;
    timings.generate += timings_.generate;
    return std::move(objects_);
  }

 private:
  const Program& program_;
  const bool time_nodes_;
  const CodeParts& parts_;
  ObjectFiles objects_;  // each written by one thread
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;  // guards what follows
  CompileTimings timings_;
  std::exception_ptr error_;
};

}  // namespace

ObjectFiles compile_objects(const Program& program, HostTarget& target, bool time_nodes,
                            size_t num_threads, CompileTimings& timings) {
  std::optional<CodeParts> parts;
  {
    CompileContext context(program.name());
    std::unique_ptr<llvm::Module> module;
    {
      const ScopedTimer timer(timings.emit);
      module = generate(program, context.get(), target.codegen_options(), time_nodes);
      context.check();
      parts.emplace(*module);
    }
    if (parts->size() == 1) return {compile(target, *module, context, timings)};
  }
  PartCompiler compiler(program, time_nodes, *parts);
  if (!llvm::llvm_is_multithreaded()) num_threads = 1;
  std::vector<HostTarget> targets;
  while (targets.size() + 1 < std::min(num_threads, parts->size())) {
    targets.push_back(target.another());
  }
  {
    std::vector<std::jthread> threads;
    threads.reserve(targets.size());
    try {
      for (HostTarget& own : targets) threads.emplace_back([&] { compiler.work(own); });
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch)
      // No more threads are to be had: the others do the work.
    }
    compiler.work(target);
  }
  return compiler.finish(timings);
}

std::string pack(const ObjectFiles& objects) {
  std::string text;
  for (const std::string& object : objects) {
    const uint64_t bytes = object.size();
    text.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    text += object;
  }
  return text;
}

std::optional<ObjectFiles> unpack(const std::string& text) {
  ObjectFiles objects;
  size_t position = 0;
  while (position < text.size()) {
    uint64_t bytes = 0;
    if (text.size() - position < sizeof bytes) return std::nullopt;
    std::memcpy(&bytes, text.data() + position, sizeof bytes);
    position += sizeof bytes;
    if (bytes > text.size() - position) return std::nullopt;
    objects.push_back(text.substr(position, bytes));
    position += bytes;
  }
  if (objects.empty()) return std::nullopt;
  return objects;
}

}  // namespace hostjit
