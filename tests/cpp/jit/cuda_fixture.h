// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ir/parser.h"
#include "passes/pipeline.h"
#include "runtime/cuda_device.h"
#include "runtime/null_cuda.h"
#include "runtime/tensor_header.h"
#include "tools/runtime_comparison.h"

namespace hostjit {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A kernel whose parameters have these types and sizes.
inline std::string cuda_kernel(const std::string& name, const std::string& types,
                               const std::vector<size_t>& bytes) {
  return "kernel @" + name + " ptx(entry=\"" + name + "\", parameters=[" + types + "]) \"\"\"\n" +
         cuda::NullCuda::image(name, bytes) + "\"\"\"\n";
}

// What the kernels of a CudaTest are in text.
inline const std::string kCudaTwice = cuda_kernel("twice", "ptr, ptr", {8, 8});
inline const std::string kCudaSum = cuda_kernel("sum", "ptr, ptr, ptr", {8, 8, 8});

// Programs on the null device, which must find no fault. There is a kernel `twice`, to[i] = 2 *
// from[i], and a kernel `sum`, to[i] = a[i] + b[i], one element per thread.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    using cuda::LaunchShape;
    null_cuda_.set_current_device(0);
    null_cuda_.set_current_stream(0, nullptr);
    null_cuda_.declare_reads("twice", {0});
    null_cuda_.emulate("twice", [](const LaunchShape& shape, void** parameters) {
      const float* from = *static_cast<float**>(parameters[0]);
      float* to = *static_cast<float**>(parameters[1]);
      const uint32_t count = shape.grid[0] * shape.block[0];
      for (uint32_t i = 0; i < count; ++i) to[i] = 2 * from[i];
    });
    null_cuda_.declare_reads("sum", {0, 1});
    null_cuda_.emulate("sum", [](const LaunchShape& shape, void** parameters) {
      const float* a = *static_cast<float**>(parameters[0]);
      const float* b = *static_cast<float**>(parameters[1]);
      float* to = *static_cast<float**>(parameters[2]);
      const uint32_t count = shape.grid[0] * shape.block[0];
      for (uint32_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
    });
    forget();
  }
  void TearDown() override {
    EXPECT_EQ(null_cuda_.take_faults(), std::vector<std::string>());
    EXPECT_EQ(cuda::current_device(), 0);
  }
  void forget() {
    null_cuda_.take_log();
    null_cuda_.take_faults();
    null_cuda_.take_launches();
  }
  // The lines of the log that begin with `what`.
  std::vector<std::string> logged(const std::string& what) {
    std::vector<std::string> lines = null_cuda_.take_log();
    std::erase_if(lines, [&](const std::string& line) { return !line.starts_with(what); });
    return lines;
  }

  static RunnableProgram planned(const std::string& text) {
    Program program = parse_program(text);
    run_pipeline(program);
    return RunnableProgram(program);
  }

  static at::Tensor tensor(const std::vector<float>& values, int8_t device = 0) {
    const TensorSpec spec{
        DType::kF32, {DeviceType::kCUDA, device}, {static_cast<int64_t>(values.size())}, {1}};
    const int32_t before = cuda::current_device();
    cuda::set_current_device(device);
    at::Tensor made = new_cuda_tensor(spec, extent_in_bytes(spec));
    cuda::set_current_device(before);
    std::ranges::copy(values, static_cast<float*>(made.unsafeGetTensorImpl()->mutable_data()));
    return made;
  }
  static at::Tensor filled(float value, int8_t device = 0) {
    return tensor(std::vector<float>(64, value), device);
  }
  static float first(const at::Tensor& tensor) {
    return *static_cast<const float*>(tensor.unsafeGetTensorImpl()->data());
  }

  cuda::NullCuda& null_cuda_ = cuda::NullCuda::install();
};

}  // namespace hostjit
