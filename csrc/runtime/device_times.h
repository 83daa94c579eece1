// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/abi.h"
#include "runtime/cuda_types.h"

namespace hostjit {

// How long the CUDA device works on nodes: a pair of events around each, on the stream that it
// works on. Members throw DriverError.
class DeviceTimes {
 public:
  DeviceTimes() = default;
  ~DeviceTimes();
  DeviceTimes(const DeviceTimes&) = delete;
  DeviceTimes& operator=(const DeviceTimes&) = delete;

  // Before node i with event 2 * i, behind it with 2 * i + 1.
  void note(cuda::CUstream stream, size_t event);
  // Waits for the device, and writes the nanoseconds of each node that was noted since the last
  // call of it.
  void read(int64_t num_nodes, int64_t* nanoseconds);

 private:
  struct Event {
    cuda::CUevent event = nullptr;
    bool is_recorded = false;
  };
  std::vector<Event> events_;
};

}  // namespace hostjit
