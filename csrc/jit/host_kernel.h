// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/kernel.h"

// Kernels for the CPU outside of any program. Includes no LLVM header.

namespace hostjit {

// A kernel with a signature that is called by itself. Compiled at the first launch. Thread-safe.
class HostKernel {
 public:
  // With `takes_range` its parameters are followed by the range of items to do.
  HostKernel(Kernel kernel, bool takes_range);
  ~HostKernel();
  HostKernel(const HostKernel&) = delete;
  HostKernel& operator=(const HostKernel&) = delete;

  const Kernel& kernel() const { return kernel_; }

  // Calls the kernel, for `items` of them if it takes a range: on as many threads as get at least
  // `grain`. The words of `parameters` begin with the bytes of one each. Throws Error.
  void launch(const std::vector<uint64_t>& parameters, int64_t items, int64_t grain);

 private:
  struct Code;
  const Code& code();

  const Kernel kernel_;
  const bool takes_range_;
  std::unique_ptr<Code> code_;
};

// The types of the parameters of the function `entry` in LLVM IR. Throws Error, with LLVM's
// diagnostic and its line, when the text can't be that of a kernel for this machine.
std::vector<ParameterType> parameters_in_text(const std::string& text, const std::string& entry);

}  // namespace hostjit
