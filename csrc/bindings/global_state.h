// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace hostjit {

// The thread's and the process's PyTorch state that a specialization was compiled under and that
// changes what the same call means: grad and inference mode, dispatch modes and functorch levels
// (all visible in the dispatch key sets of the thread), autocast, default dtype, determinism, and
// the device that new tensors are on (torch.set_default_device, `with torch.device(...)`).
// Not the float32 matmul precision: operators ask for it themselves, and our own products are
// always computed in full float32.
struct GlobalState {
  uint64_t included_keys;
  uint64_t excluded_keys;
  uint64_t flags;  // modes, dtypes and the default device, packed

  static constexpr uint64_t kOtherMode = uint64_t{1} << 63;

  // Of the process, where the rest is of the thread.
  struct ProcessModes {
    bool deterministic;
    c10::ScalarType default_dtype;
  };

  static GlobalState current();
  // What current() would be under these modes.
  static GlobalState current_with(const ProcessModes& modes);

  // What the flags and the keys say of modes that a user sets.
  struct Modes {
    bool gradients;
    bool inference;
    bool forward_gradients;
    ProcessModes process;
    std::optional<c10::ScalarType> autocast_cpu;  // nullopt: off
    std::optional<c10::ScalarType> autocast_cuda;
    std::optional<c10::Device> default_device;  // nullopt: none was set
  };
  Modes modes() const;
  // True under any other __torch_function__ mode: such a call belongs to the mode.
  bool belongs_to_mode() const { return (flags & kOtherMode) != 0; }
  friend bool operator==(const GlobalState&, const GlobalState&) = default;
};

}  // namespace hostjit
