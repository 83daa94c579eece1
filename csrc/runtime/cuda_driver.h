// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "runtime/cuda_types.h"
#include "support/check.h"

namespace hostjit::cuda {

// The driver's functions: those of libcuda, or of a NullCuda.
struct Driver {
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define HOSTJIT_CUDA_MEMBER(name, version, parameters) CUresult(*name) parameters = nullptr;
  HOSTJIT_FOR_EACH_CUDA_FUNCTION(HOSTJIT_CUDA_MEMBER)
#undef HOSTJIT_CUDA_MEMBER
};

// What a function of the driver reports: "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (invalid
// argument)".
class DriverError : public Error {
 public:
  DriverError(CUresult result, const std::string& message) : Error(message), result_(result) {}
  CUresult result() const { return result_; }

 private:
  CUresult result_;
};

// The process's driver, loaded at the first call. Throws Error, each time, that says what is
// missing: libcuda, a device, or a function that came with a newer driver.
const Driver& driver();

// Puts `table` in the place of libcuda, for as long as the process runs; it is not copied. Throws
// Error once driver() has been asked for another one.
void use_driver(const Driver& table);

// Throws DriverError unless `result` is CUDA_SUCCESS.
void check(CUresult result, const char* function);

}  // namespace hostjit::cuda

// Calls a function of the driver: HOSTJIT_CUDA(cuEventRecord, event, stream).
#define HOSTJIT_CUDA(function, ...) \
  ::hostjit::cuda::check(::hostjit::cuda::driver().function(__VA_ARGS__), #function)
