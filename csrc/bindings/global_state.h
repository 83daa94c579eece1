// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

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

  static GlobalState current();
  friend bool operator==(const GlobalState&, const GlobalState&) = default;
};

// True while a __torch_function__ mode is active: such a call belongs to the mode.
bool torch_function_mode_active();

}  // namespace hostjit
