// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace hostjit {

// The thread's and the process's PyTorch state that a specialization was compiled under and that
// changes what the same call means: grad and inference mode, dispatch modes and functorch levels
// (all visible in the dispatch key sets of the thread), autocast, default dtype, determinism.
// Not the float32 matmul precision: operators ask for it themselves, and our own products are
// always computed in full float32.
struct GlobalState {
  uint64_t included_keys;
  uint64_t excluded_keys;
  uint64_t flags;  // modes and dtypes, packed

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
  };
  Modes modes() const;
  friend bool operator==(const GlobalState&, const GlobalState&) = default;
};

// True while a __torch_function__ mode is active: such a call belongs to the mode.
bool torch_function_mode_active();

}  // namespace hostjit
