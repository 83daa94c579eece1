// SPDX-License-Identifier: Apache-2.0
#include "bindings/global_state.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>

#include "bindings/py_ref.h"

namespace hostjit {
namespace {

constexpr unsigned kDtypeBits = 8;
// The default device lies above what modes and dtypes take: 4 bits and at most 3 dtypes.
constexpr unsigned kDeviceShift = 32;
constexpr unsigned kDeviceBits = 8;  // of its type and of its index, each one more than it is

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

// torch.utils._device.DeviceContext, which PyTorch imports when the first is made; or null.
PyObject* class_of_device_contexts() {
  static PyObject* const found = [] {
    const PyRef module = PyRef::steal(PyImport_ImportModule("torch.utils._device"));
    PyObject* const type = module ? PyObject_GetAttrString(module.get(), "DeviceContext") : nullptr;
    if (type == nullptr) PyErr_Clear();
    return type;
  }();
  return found;
}

// What the flags say of the __torch_function__ modes of this thread, of which there are some. Of
// several default devices the innermost counts.
[[gnu::cold]] uint64_t flags_of_function_modes() {
  using Stack = at::impl::PythonTorchFunctionTLS;
  if (Stack::get_disabled_state() != at::impl::TorchFunctionDisabledState::ENABLED) {
    return GlobalState::kOtherMode;
  }
  PyObject* innermost = nullptr;
  for (int64_t i = 0; i < Stack::stack_len(); ++i) {
    innermost = Stack::get_stack_at(i)->ptr(getPyInterpreter());
    if (reinterpret_cast<PyObject*>(Py_TYPE(innermost)) != class_of_device_contexts()) {
      return GlobalState::kOtherMode;
    }
  }
  static PyObject* const name = PyUnicode_InternFromString("device");
  const PyRef object = PyRef::steal(PyObject_GetAttr(innermost, name));
  if (!object || !THPDevice_Check(object.get())) {
    PyErr_Clear();
    return GlobalState::kOtherMode;
  }
  const c10::Device device = reinterpret_cast<THPDevice*>(object.get())->device;
  const auto type = static_cast<uint64_t>(device.type()) + 1;
  const auto index = static_cast<uint64_t>(device.index() + 1);
  return ((type << kDeviceBits) | index) << kDeviceShift;
}

// In place: every call asks.
[[gnu::always_inline]] inline GlobalState state_under(const GlobalState::ProcessModes& modes) {
  const ThreadAddresses& thread = thread_addresses();
  const c10::impl::LocalDispatchKeySet keys = *thread.keys;
  const c10::AutogradState& autograd = *thread.autograd;
  uint64_t flags = 0;
  const auto append = [&flags](uint64_t value, unsigned bits) { flags = (flags << bits) | value; };
  append(autograd.get_grad_mode(), 1);
  append(autograd.get_inference_mode(), 1);
  append(autograd.get_fw_grad_mode(), 1);
  append(modes.deterministic, 1);
  append(static_cast<uint64_t>(modes.default_dtype), kDtypeBits);
  // Where autocast is off, which the keys tell, nobody asks for its dtype.
  if (!keys.excluded_.has(c10::DispatchKey::AutocastCPU)) [[unlikely]]
    append(static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCPU)), kDtypeBits);
  if (!keys.excluded_.has(c10::DispatchKey::AutocastCUDA)) [[unlikely]]
    append(static_cast<uint64_t>(at::autocast::get_autocast_dtype(at::kCUDA)), kDtypeBits);
  if (at::impl::PythonTorchFunctionTLS::stack_len() > 0) [[unlikely]]
    flags |= flags_of_function_modes();
  return {keys.included_.raw_repr(), keys.excluded_.raw_repr(), flags};
}

}  // namespace

GlobalState GlobalState::current() {
  static const at::Context& context = at::globalContext();
  return state_under({context.deterministicAlgorithms(), c10::get_default_dtype_as_scalartype()});
}

GlobalState GlobalState::current_with(const ProcessModes& modes) { return state_under(modes); }

GlobalState::Modes GlobalState::modes() const {
  uint64_t rest = flags & ((uint64_t{1} << kDeviceShift) - 1);
  const auto take = [&rest](unsigned bits) {
    const uint64_t value = rest & ((uint64_t{1} << bits) - 1);
    rest >>= bits;
    return value;
  };
  const auto take_dtype = [&take] { return static_cast<c10::ScalarType>(take(kDtypeBits)); };
  const auto excluded = c10::DispatchKeySet::from_raw_repr(excluded_keys);
  Modes modes{};  // in the reverse order of current_with
  if (!excluded.has(c10::DispatchKey::AutocastCUDA)) modes.autocast_cuda = take_dtype();
  if (!excluded.has(c10::DispatchKey::AutocastCPU)) modes.autocast_cpu = take_dtype();
  modes.process.default_dtype = take_dtype();
  modes.process.deterministic = take(1) != 0;
  modes.forward_gradients = take(1) != 0;
  modes.inference = take(1) != 0;
  modes.gradients = take(1) != 0;
  rest = (flags & ~kOtherMode) >> kDeviceShift;
  if (rest != 0) {
    const auto index = static_cast<c10::DeviceIndex>(static_cast<int>(take(kDeviceBits)) - 1);
    const auto type = static_cast<c10::DeviceType>(static_cast<int>(take(kDeviceBits)) - 1);
    modes.default_device = c10::Device(type, index);
  }
  return modes;
}

}  // namespace hostjit
