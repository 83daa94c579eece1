// SPDX-License-Identifier: Apache-2.0
// Compares our declarations of the CUDA driver's interface with the toolkit's, where there is one.

#if __has_include(<cudaTypedefs.h>)

#include "runtime/cuda_types.h"

#include <cudaTypedefs.h>
#include <gtest/gtest.h>

#include <tuple>
#include <type_traits>

namespace hostjit::cuda {
namespace {

// Two parameters are passed alike: pointers as pointers, numbers as numbers of one size.
template <class Ours, class Theirs>
constexpr bool is_passed_alike() {
  return sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
}

template <class Ours, class Theirs>
struct Alike : std::false_type {};
template <class... Ours, class... Theirs>
  requires(sizeof...(Ours) == sizeof...(Theirs))
struct Alike<CUresult (*)(Ours...), ::CUresult (*)(Theirs...)>
    : std::bool_constant<(is_passed_alike<Ours, Theirs>() && ...)> {};

TEST(CudaTypes, FunctionsAreThoseOfTheToolkit) {
// NOLINTBEGIN(bugprone-macro-parentheses)
#define HOSTJIT_CUDA_COMPARE(name, version, parameters) \
  static_assert(Alike<CUresult(*) parameters, PFN_##name##_v##version>::value);
  HOSTJIT_FOR_EACH_CUDA_FUNCTION(HOSTJIT_CUDA_COMPARE)
#undef HOSTJIT_CUDA_COMPARE
  // NOLINTEND(bugprone-macro-parentheses)
}

TEST(CudaTypes, StructsAreThoseOfTheToolkit) {
  static_assert(sizeof(CUlaunchConfig) == sizeof(::CUlaunchConfig));
  static_assert(offsetof(CUlaunchConfig, grid) == offsetof(::CUlaunchConfig, gridDimX));
  static_assert(offsetof(CUlaunchConfig, block) == offsetof(::CUlaunchConfig, blockDimX));
  static_assert(offsetof(CUlaunchConfig, shared_memory) ==
                offsetof(::CUlaunchConfig, sharedMemBytes));
  static_assert(offsetof(CUlaunchConfig, stream) == offsetof(::CUlaunchConfig, hStream));
  static_assert(offsetof(CUlaunchConfig, attributes) == offsetof(::CUlaunchConfig, attrs));
  static_assert(offsetof(CUlaunchConfig, num_attributes) == offsetof(::CUlaunchConfig, numAttrs));
  static_assert(sizeof(CUlaunchAttribute) == sizeof(::CUlaunchAttribute));
  static_assert(offsetof(CUlaunchAttribute, value) == offsetof(::CUlaunchAttribute, value));
  using TheirParameters = CUDA_KERNEL_NODE_PARAMS_v2;
  static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS) == sizeof(TheirParameters));
  static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS, block) == offsetof(TheirParameters, blockDimX));
  static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS, parameters) ==
                offsetof(TheirParameters, kernelParams));
  static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS, kernel) == offsetof(TheirParameters, kern));
  static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS, context) == offsetof(TheirParameters, ctx));
}

TEST(CudaTypes, NumbersAreThoseOfTheToolkit) {
  EXPECT_EQ(int{CUDA_ERROR_ILLEGAL_ADDRESS}, int{::CUDA_ERROR_ILLEGAL_ADDRESS});
  EXPECT_EQ(int{CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE}, int{::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE});
  EXPECT_EQ(int{CUDA_ERROR_NOT_SUPPORTED}, int{::CUDA_ERROR_NOT_SUPPORTED});
  EXPECT_EQ(int{CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES}, int{::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES});
  EXPECT_EQ(int{CUDA_ERROR_LAUNCH_FAILED}, int{::CUDA_ERROR_LAUNCH_FAILED});
  EXPECT_EQ(int{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
            int{::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED});
  EXPECT_EQ(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, int{::CU_LAUNCH_ATTRIBUTE_COOPERATIVE});
  EXPECT_EQ(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, int{::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION});
  EXPECT_EQ(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            int{::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION});
  EXPECT_EQ(CU_EVENT_DISABLE_TIMING, uint32_t{::CU_EVENT_DISABLE_TIMING});
  EXPECT_EQ(CU_STREAM_NON_BLOCKING, uint32_t{::CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            int{::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES});
  EXPECT_EQ(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            int{::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT});
  EXPECT_EQ(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            int{::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR});
  EXPECT_EQ(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            int{::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR});
}

}  // namespace
}  // namespace hostjit::cuda

#endif
