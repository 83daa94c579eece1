// SPDX-License-Identifier: Apache-2.0
#include "bindings/global_state.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hostjit {
namespace {

// Where PyTorch keeps this thread's state: the addresses stay for the life of the thread, and
// asking for each costs a call across libraries.
struct ThreadAddresses {
  const c10::impl::PODLocalDispatchKeySet* keys = nullptr;
  const c10::AutogradState* autograd = nullptr;
};

const ThreadAddresses& thread_addresses() {
  static thread_local ThreadAddresses addresses;
  if (addresses.keys == nullptr) [[unlikely]] {
    addresses = {&c10::impl::raw_local_dispatch_key_set, &c10::AutogradState::get_tls_state()};
  }
  return addresses;
}

}  // namespace

GlobalState GlobalState::current() {
  const ThreadAddresses& thread = thread_addresses();
  const c10::impl::LocalDispatchKeySet keys = *thread.keys;
  const c10::AutogradState& autograd = *thread.autograd;
  static const at::Context& context = at::globalContext();
  uint64_t flags = 0;
  const auto append = [&flags](uint64_t value, unsigned bits) { flags = (flags << bits) | value; };
  append(autograd.get_grad_mode(), 1);
  append(autograd.get_inference_mode(), 1);
  append(autograd.get_fw_grad_mode(), 1);
  append(context.deterministicAlgorithms(), 1);
  append(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()), 8);
  // Where autocast is off, which the keys tell, nobody asks for its dtype.
  if (!keys.excluded_.has(c10::DispatchKey::AutocastCPU)) [[unlikely]]
    append(static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCPU)), 8);
  if (!keys.excluded_.has(c10::DispatchKey::AutocastCUDA)) [[unlikely]]
    append(static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCUDA)), 8);
  return {keys.included_.raw_repr(), keys.excluded_.raw_repr(), flags};
}

bool torch_function_mode_active() { return at::impl::PythonTorchFunctionTLS::stack_len() > 0; }

}  // namespace hostjit
