// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda_driver.h"
#include "runtime/device_launch.h"

namespace hostjit::cuda {

// A launch as the null device understood it.
struct NullLaunch {
  std::string kernel;
  LaunchShape shape;
  int32_t device = 0;
  int32_t stream = 0;  // 0 is the default stream of the device
  bool from_graph = false;
  // One per parameter: "a3+64", the address 64 bytes into the third allocation; else the bytes as
  // a number, "0x2a".
  std::vector<std::string> parameters;
};

// CUDA devices that are none, for tests without a GPU: a driver whose memory is the host's, whose
// streams run what they are given at once, and which watches for mistakes that a GPU would not
// tell of. Memory that is used after it was freed, that two streams use without an event between
// them, and handles that are used after their end are faults.
//
// Memory is reached by the addresses that launches and copies have as parameters. An access
// of a kernel concerns the address that it is given, and `declare_extents` tells how far it goes
// from there. Memory of the allocator belongs to the stream that was current: others wait for what
// that stream had to do. A parameter of 8 bytes
// that points into an allocation is taken for an address that the kernel writes, unless
// `declare_reads` says that it only reads.
//
// One per process, for good; thread-safe.
class NullCuda {
 public:
  ~NullCuda() = delete;  // lives as long as the process
  // Makes it the process's driver, with PyTorch's allocator, streams and device guard for CUDA
  // where PyTorch is built without. Throws Error where there is a driver already.
  static NullCuda& install(int32_t num_devices = 2);
  // Null before install.
  static NullCuda* installed();

  // An image for cuModuleLoadDataEx: the names of kernels with the sizes of their parameters, as
  // PTX has them. PTX is taken too.
  static std::string image(const std::string& kernel, const std::vector<size_t>& parameter_bytes);

  // Runs for every launch of a kernel of that name from now on; `parameters` as for the driver.
  using Emulation = std::function<void(const LaunchShape& shape, void** parameters)>;
  void emulate(const std::string& kernel, Emulation run);
  // These parameters of the kernel are memory that it only reads.
  void declare_reads(const std::string& kernel, std::vector<size_t> parameters);
  // How many bytes from its address on the kernel may access, for each parameter.
  void declare_extents(const std::string& kernel, std::vector<size_t> bytes);

  // The call of `function` after the next `after` ones returns `result`; with `sticky` so does
  // every call of any function from then on, as when a kernel has faulted.
  void fail(const std::string& function, CUresult result, int64_t after = 0, bool sticky = false);

  // What happened since the last call of it, a line each: "launch scale<<<(4, 1, 1), (128, 1, 1)>>>
  // (a0, a1+16, 0x4) on stream 1", "record event 0 on stream 2", "allocate a2: 64 bytes".
  std::vector<std::string> take_log();
  std::vector<NullLaunch> take_launches();
  // What was wrong since the last call of it.
  std::vector<std::string> take_faults();
  // The stream is one whose work somebody makes a graph of; launches run all the same.
  void set_captured(CUstream stream, bool captured);
  int64_t bytes_allocated() const;

  // Of PyTorch's side. The current stream is the calling thread's. Streams are numbered from 1;
  // the default stream is null.
  CUdeviceptr allocate(size_t bytes, int32_t device, CUstream stream);
  void free(CUdeviceptr memory);
  // The memory is not given to others before this stream is done with it.
  void note_use(CUdeviceptr memory, CUstream stream);
  CUstream current_stream(int32_t device) const;
  void set_current_stream(int32_t device, CUstream stream);
  int32_t current_device() const;
  void set_current_device(int32_t device);

  class State;
  State& state() { return *state_; }

 private:
  explicit NullCuda(int32_t num_devices);

  std::unique_ptr<State> state_;
};

}  // namespace hostjit::cuda
