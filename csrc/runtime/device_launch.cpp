// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_launch.h"

#include <algorithm>
#include <array>

#include "runtime/cuda_driver.h"

namespace hostjit::cuda {

CUresult launch(CUfunction function, const LaunchShape& shape, CUstream stream, void** parameters) {
  std::array<CUlaunchAttribute, 3> attributes{};
  uint32_t num_attributes = 0;
  const auto add = [&](int32_t id) -> CUlaunchAttribute& {
    attributes[num_attributes].id = id;
    return attributes[num_attributes++];
  };
  if (shape.cooperative) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).value.number = 1;
  const bool has_cluster =
      std::ranges::any_of(shape.cluster, [](uint32_t blocks) { return blocks != 1; });
  if (has_cluster) {
    std::ranges::copy(shape.cluster, add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).value.cluster_dim);
  }
  if (shape.programmatic) {
    add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).value.number = 1;
  }
  CUlaunchConfig config{{}, {}, shape.shared_memory, stream, attributes.data(), num_attributes};
  std::ranges::copy(shape.grid, config.grid);
  std::ranges::copy(shape.block, config.block);
  return driver().cuLaunchKernelEx(&config, function, parameters, nullptr);
}

}  // namespace hostjit::cuda
