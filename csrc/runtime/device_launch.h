// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "runtime/cuda_types.h"

namespace hostjit::cuda {

// What a launch asks for, whichever way it is made.
struct LaunchShape {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster[3] = {1, 1, 1};
  uint32_t shared_memory = 0;  // bytes, dynamic
  bool cooperative = false;
  bool programmatic = false;  // programmatic dependent launch

  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

// Launches a function; `parameters` are the addresses of its parameters.
CUresult launch(CUfunction function, const LaunchShape& shape, CUstream stream, void** parameters);

}  // namespace hostjit::cuda
