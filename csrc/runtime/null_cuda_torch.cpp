// SPDX-License-Identifier: Apache-2.0
#include "runtime/null_cuda_torch.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>

namespace hostjit::cuda {
namespace {

NullCuda& null_cuda() { return *NullCuda::installed(); }

void free_memory(void* memory) { null_cuda().free(reinterpret_cast<CUdeviceptr>(memory)); }

// On the current device and its current stream, as PyTorch's caching allocator.
class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int32_t device = null_cuda().current_device();
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, nullptr, &free_memory, place};
    const CUdeviceptr memory =
        null_cuda().allocate(bytes, device, null_cuda().current_stream(device));
    TORCH_CHECK_WITH(OutOfMemoryError, memory != 0, "CUDA out of memory. Tried to allocate ", bytes,
                     " bytes.");
    auto* address = reinterpret_cast<void*>(memory);
    return {address, address, &free_memory, place};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }
};

// The id of a c10::Stream is the stream's handle.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(null_cuda().current_device())};
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) null_cuda().set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::Stream getStream(c10::Device device) const override {
    return stream(null_cuda().current_stream(device.index()), device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(nullptr, device);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::Stream before = getStream(next.device());
    null_cuda().set_current_stream(next.device_index(), reinterpret_cast<CUstream>(next.id()));
    return before;
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    const c10::Device before = exchangeDevice(device);
    CUstream made = nullptr;
    HOSTJIT_CUDA(cuStreamCreate, &made, CU_STREAM_NON_BLOCKING);
    setDevice(before);
    return stream(made, device);
  }
  void* getStreamNativeHandle(c10::Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& user) const override {
    null_cuda().note_use(reinterpret_cast<CUdeviceptr>(memory.get()),
                         reinterpret_cast<CUstream>(user.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    int32_t count = 0;
    driver().cuDeviceGetCount(&count);
    return static_cast<c10::DeviceIndex>(count);
  }

 private:
  static c10::Stream stream(CUstream handle, c10::Device device) {
    return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(handle));
  }
};

}  // namespace

void register_with_torch(NullCuda&) {
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return;
  static Allocator& allocator = *new Allocator();  // leaked: tensors outlive static destruction
  c10::SetAllocator(c10::DeviceType::CUDA, &allocator);
  static const Guard kGuard;
  static const c10::impl::DeviceGuardImplRegistrar kRegistrar(c10::DeviceType::CUDA, &kGuard);
}

}  // namespace hostjit::cuda
