// SPDX-License-Identifier: Apache-2.0
#include "jit/host_kernel.h"

#include <algorithm>
#include <mutex>

#include "codegen/codegen.h"
#include "codegen/typed_kernel.h"
#include "ir/builder.h"
#include "jit/compile_context.h"
#include "jit/packed_kernels.h"
#include "runtime/externs.h"

namespace hostjit {
namespace {

// A program that launches a kernel, for the sake of its kernel.
Program launching(const Kernel& kernel, bool takes_range) {
  Program program("launch");
  program.add_kernel(kernel);
  LaunchKernel launch{.kernel = kernel.name};
  for (const ParameterType type : kernel.parameters) {
    if (type == ParameterType::kPointer) {
      launch.in_out.push_back(program.add_input(TensorType::make(DType::kU8, {0}), ""));
    } else {
      const bool is_float = type == ParameterType::kF32 || type == ParameterType::kF64;
      launch.scalars.push_back(program.add_input(is_float ? Type(F64Type{}) : IndexType{}, ""));
    }
  }
  const std::vector<Value*> operands = launch.all_operands();
  auto pointers = launch.in_out.begin();
  auto numbers = launch.scalars.begin();
  for (const ParameterType type : kernel.parameters) {
    const Value* operand = type == ParameterType::kPointer ? *pointers++ : *numbers++;
    launch.parameters.push_back(std::ranges::find(operands, operand) - operands.begin());
  }
  if (takes_range) launch.grid = {1, 1, 1};
  Builder(program).create(std::move(launch));
  return program;
}

// hostjit_parallel_for hands a range to its first argument, with the others.
void call_range(int64_t begin, int64_t end, void* const* arguments) {
  const auto& given = *static_cast<const std::vector<void*>*>(arguments[1]);
  std::vector<void*> all(given);
  all.insert(all.end(), {&begin, &end});
  reinterpret_cast<PackedKernel>(arguments[0])(all.data());
}

}  // namespace

struct HostKernel::Code {
  std::once_flag once;
  LoadedKernels loaded;
  PackedKernel function = nullptr;
};

HostKernel::HostKernel(Kernel kernel, bool takes_range)
    : kernel_(std::move(kernel)), takes_range_(takes_range), code_(std::make_unique<Code>()) {
  HOSTJIT_CHECK(has_signature(kernel_) && !is_cuda(kernel_.language), "kernel '", kernel_.name,
                "' is ", to_string(kernel_.language),
                ", expected one for the CPU with a signature");
}

HostKernel::~HostKernel() = default;

const HostKernel::Code& HostKernel::code() {
  std::call_once(code_->once, [&] {
    code_->loaded = load_packed_kernels(launching(kernel_, takes_range_));
    code_->function = code_->loaded.kernels.at(kernel_.name);
  });
  return *code_;
}

void HostKernel::launch(const std::vector<uint64_t>& parameters, int64_t items, int64_t grain) {
  HOSTJIT_CHECK(parameters.size() == kernel_.parameters.size(), "kernel '", kernel_.name,
                "' is launched with ", parameters.size(), " arguments, expected ",
                kernel_.parameters.size());
  const PackedKernel function = code().function;
  std::vector<void*> arguments;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool is_pointer = kernel_.parameters[i] == ParameterType::kPointer;
    arguments.push_back(is_pointer ? reinterpret_cast<void*>(parameters[i])
                                   : const_cast<uint64_t*>(&parameters[i]));
  }
  if (!takes_range_) return function(arguments.data());
  if (items <= 0) return;
  void* const context[] = {reinterpret_cast<void*>(function), &arguments};
  hostjit_parallel_for(items, grain, &call_range, context);
}

std::vector<ParameterType> parameters_in_text(const std::string& text, const std::string& entry) {
  JitSession& session = JitSession::instance();
  const std::lock_guard lock(session.mutex());
  CompileContext context(entry);
  const std::unique_ptr<llvm::Module> module =
      make_module(entry, context.get(), session.target().codegen_options());
  const Kernel kernel{.name = entry, .text = text, .entry = entry};
  std::vector<ParameterType> found = parameters_in_text(*module, kernel);
  context.check();
  return found;
}

}  // namespace hostjit
