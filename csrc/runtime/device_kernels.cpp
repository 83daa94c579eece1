// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_kernels.h"

#include <c10/util/Exception.h>

#include <array>

#include "runtime/cuda_driver.h"
#include "runtime/extern_status.h"
#include "runtime/externs.h"
#include "support/check.h"

namespace hostjit {
namespace {

using cuda::CUresult;

// Of CUjit_option.
constexpr int32_t kErrorLogBuffer = 5;
constexpr int32_t kErrorLogBufferSizeBytes = 6;

// More dynamic shared memory than this has to be asked for.
constexpr int64_t kUsualSharedMemory = 48 * 1024;

cuda::CUmodule load_module(const DeviceKernelSpec& kernel) {
  std::array<char, 4096> log{};
  std::array<int32_t, 2> options{kErrorLogBuffer, kErrorLogBufferSizeBytes};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
  cuda::CUmodule module = nullptr;
  const CUresult result = cuda::driver().cuModuleLoadDataEx(
      &module, kernel.image.c_str(), options.size(), options.data(), values.data());
  if (result == cuda::CUDA_SUCCESS) return module;
  try {
    cuda::check(result, "cuModuleLoadDataEx");
  } catch (const cuda::DriverError& error) {
    throw cuda::DriverError(result, concat("kernel '", kernel.name, "': ", error.what(),
                                           log[0] == 0 ? "" : "\n", log.data()));
  }
  return module;
}

// Parameters of other sizes would be read from memory that is not theirs.
void check_parameters(cuda::CUfunction function, const DeviceKernelSpec& kernel) {
  auto* get_size = cuda::driver().cuFuncGetParamInfo;
  if (get_size == nullptr) return;
  size_t offset = 0;
  size_t bytes = 0;
  const size_t count = kernel.parameter_bytes.size();
  for (size_t i = 0; i < count; ++i) {
    HOSTJIT_CHECK(get_size(function, i, &offset, &bytes) == cuda::CUDA_SUCCESS, "kernel '",
                  kernel.name, "': '", kernel.entry, "' has ", i, " parameters, expected ", count);
    HOSTJIT_CHECK(static_cast<int64_t>(bytes) == kernel.parameter_bytes[i], "kernel '", kernel.name,
                  "': parameter ", i, " of '", kernel.entry, "' has ", bytes, " bytes, expected ",
                  kernel.parameter_bytes[i]);
  }
  HOSTJIT_CHECK(get_size(function, count, &offset, &bytes) != cuda::CUDA_SUCCESS, "kernel '",
                kernel.name, "': '", kernel.entry, "' has more than ", count, " parameters");
}

}  // namespace

DeviceKernels::~DeviceKernels() {
  // At the end of the process the context may be gone; then there is nothing to free.
  for (cuda::CUmodule module : modules_) cuda::driver().cuModuleUnload(module);
}

cuda::CUfunction DeviceKernels::load_one(const DeviceKernelSpec& kernel) {
  auto* function = reinterpret_cast<cuda::CUfunction>(kernel.function);
  if (function == nullptr) {
    modules_.push_back(load_module(kernel));
    const CUresult result =
        cuda::driver().cuModuleGetFunction(&function, modules_.back(), kernel.entry.c_str());
    HOSTJIT_CHECK(result == cuda::CUDA_SUCCESS, "kernel '", kernel.name, "': its code has no '",
                  kernel.entry, "', the entry");
  }
  check_parameters(function, kernel);
  allow_shared_memory(function, kernel.shared_memory);
  return function;
}

void* const* DeviceKernels::load(const std::vector<DeviceKernelSpec>& kernels) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!table_.empty()) return table_.data();
  std::vector<void*> table{reinterpret_cast<void*>(cuda::driver().cuLaunchKernelEx)};
  for (const DeviceKernelSpec& kernel : kernels) table.push_back(load_one(kernel));
  table_ = std::move(table);
  return table_.data();
}

void allow_shared_memory(cuda::CUfunction function, int64_t bytes) {
  if (bytes <= kUsualSharedMemory) return;
  HOSTJIT_CUDA(cuFuncSetAttribute, function, cuda::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
               static_cast<int32_t>(bytes));
}

void throw_launch_error(const std::string& kernel, int32_t result) {
  const char* text = nullptr;
  cuda::driver().cuGetErrorString(static_cast<CUresult>(result), &text);
  throw c10::AcceleratorError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, result,
      concat("CUDA error: ", text == nullptr ? concat(result) : text, "\nAt the launch of kernel '",
             kernel, "'; a kernel before it may be the cause."));
}

extern "C" {

void hostjit_fail_launch(Frame* frame, int64_t kernel, int32_t result) noexcept {
  status_of(frame, [&] {
    throw_launch_error(frame->program->layout().device_kernels.at(kernel).name, result);
  });
}

}  // extern "C"

}  // namespace hostjit
