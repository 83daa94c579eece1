// SPDX-License-Identifier: Apache-2.0
#include "runtime/launchable_kernel.h"

#include "jit/cuda_fixture.h"
#include "support/check.h"

namespace hostjit {
namespace {

using cuda::LaunchShape;
using cuda::NullCuda;
using cuda::NullLaunch;

class LaunchableKernelTest : public CudaTest {
 protected:
  static DeviceKernelSpec twice() {
    return {"twice", NullCuda::image("twice", {8, 8}), "twice", {8, 8}};
  }
  static std::vector<uint64_t> addresses(const at::Tensor& from, const at::Tensor& to) {
    const auto address = [](const at::Tensor& tensor) {
      return reinterpret_cast<uint64_t>(tensor.unsafeGetTensorImpl()->mutable_data());
    };
    return {address(from), address(to)};
  }
};

TEST_F(LaunchableKernelTest, RunsOnEachDeviceAndItsCurrentStream) {
  LaunchableKernel kernel(twice());
  cuda::CUstream stream = nullptr;
  cuda::require_context(0);
  HOSTJIT_CUDA(cuStreamCreate, &stream, cuda::CU_STREAM_NON_BLOCKING);
  null_cuda_.set_current_stream(0, stream);
  for (const int8_t device : {0, 1, 0}) {
    const at::Tensor from = filled(4, device);
    const at::Tensor to = filled(0, device);
    forget();
    kernel.launch(device, {{2, 1, 1}, {32, 1, 1}}, addresses(from, to));
    EXPECT_EQ(first(to), 8);
    const std::vector<NullLaunch> launches = null_cuda_.take_launches();
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ(launches[0].device, device);
    EXPECT_TRUE(device != 0 || launches[0].stream != 0);
  }
  null_cuda_.set_current_stream(0, nullptr);
}

TEST_F(LaunchableKernelTest, HasTheShapeThatItIsGiven) {
  LaunchableKernel kernel(twice());
  const at::Tensor from = filled(4);
  const at::Tensor to = filled(0);
  forget();
  for (const LaunchShape& shape :
       {LaunchShape{{1, 1, 1}, {64, 1, 1}},
        LaunchShape{{4, 2, 1}, {8, 2, 2}, {2, 1, 1}, 100000, true, true}}) {
    null_cuda_.emulate("twice", [](const LaunchShape&, void**) {});
    kernel.launch(0, shape, addresses(from, to));
    EXPECT_EQ(null_cuda_.take_launches().at(0).shape, shape);
  }
}

TEST_F(LaunchableKernelTest, AnEmptyGridDoesNotRun) {
  LaunchableKernel kernel(twice());
  kernel.launch(0, {{0, 1, 1}, {32, 1, 1}}, addresses(filled(4), filled(0)));
  EXPECT_TRUE(null_cuda_.take_launches().empty());
}

TEST_F(LaunchableKernelTest, SaysWhatIsWrong) {
  const at::Tensor from = filled(4);
  const at::Tensor to = filled(0);
  const std::vector<uint64_t> parameters = addresses(from, to);
  const auto error_of = [&](LaunchableKernel& kernel, const LaunchShape& shape) -> std::string {
    try {
      kernel.launch(0, shape, parameters);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  LaunchableKernel kernel(twice());
  EXPECT_TRUE(contains(error_of(kernel, {{1, 1, 1}, {4096, 1, 1}}),
                       "CUDA error: invalid argument\nAt the launch of kernel 'twice'"));
  DeviceKernelSpec other = twice();
  other.entry = "thrice";
  LaunchableKernel missing(other);
  EXPECT_TRUE(contains(error_of(missing, {}), "kernel 'twice': its code has no 'thrice'"));
  EXPECT_EQ(error_of(kernel, {{2, 1, 1}, {32, 1, 1}}), "");
}

}  // namespace
}  // namespace hostjit
