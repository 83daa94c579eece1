// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda_device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <array>
#include <atomic>

#include "runtime/cuda_driver.h"
#include "runtime/null_cuda.h"

namespace hostjit::cuda {
namespace {

constexpr int32_t kMostDevices = 64;

const c10::impl::DeviceGuardImplInterface& guard() {
  HOSTJIT_CHECK(c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA),
                "this PyTorch is built without CUDA");
  return *c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
}

c10::Device torch_device(int32_t device) {
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)};
}

// AOTInductor's C shim, which PyTorch keeps stable.
using GetCurrentStream = int32_t (*)(int32_t device, void** stream);

GetCurrentStream find_get_current_stream() {
  void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  HOSTJIT_CHECK(library, "PyTorch's libtorch_cuda.so is not loaded");
  void* found = dlsym(library, "aoti_torch_get_current_cuda_stream");
  HOSTJIT_CHECK(found, "PyTorch has no aoti_torch_get_current_cuda_stream");
  return reinterpret_cast<GetCurrentStream>(found);
}

// Retained once, for as long as the process runs, as PyTorch does.
CUcontext primary_context(int32_t device) {
  static std::array<std::atomic<CUcontext>, kMostDevices> contexts{};
  HOSTJIT_CHECK(device >= 0 && device < kMostDevices, "cuda:", device, ", expected an index below ",
                kMostDevices);
  std::atomic<CUcontext>& known = contexts[static_cast<size_t>(device)];
  if (CUcontext context = known.load(std::memory_order_acquire)) return context;
  CUdevice handle = 0;
  CUcontext context = nullptr;
  HOSTJIT_CUDA(cuDeviceGet, &handle, device);
  HOSTJIT_CUDA(cuDevicePrimaryCtxRetain, &context, handle);
  known.store(context, std::memory_order_release);
  return context;
}

}  // namespace

int32_t current_device() { return guard().getDevice().index(); }

void set_current_device(int32_t device) { guard().setDevice(torch_device(device)); }

void require_context(int32_t device) {
  CUcontext current = nullptr;
  HOSTJIT_CUDA(cuCtxGetCurrent, &current);
  CUcontext primary = primary_context(device);
  if (current != primary) HOSTJIT_CUDA(cuCtxSetCurrent, primary);
}

CUstream current_stream(int32_t device) {
  if (const NullCuda* null_cuda = NullCuda::installed()) return null_cuda->current_stream(device);
  static const GetCurrentStream kGet = find_get_current_stream();
  void* stream = nullptr;
  HOSTJIT_CHECK(kGet(device, &stream) == 0, "PyTorch has no current stream of cuda:", device);
  return static_cast<CUstream>(stream);
}

c10::Stream torch_stream(int32_t device) { return guard().getStream(torch_device(device)); }

c10::Stream pool_stream(int32_t device) {
  return guard().getStreamFromGlobalPool(torch_device(device), /*isHighPriority=*/false);
}

c10::Stream torch_stream_of(int64_t id, int32_t device) {
  return c10::Stream(c10::Stream::UNSAFE, torch_device(device), id);
}

void set_torch_stream(c10::Stream stream) { guard().exchangeStream(stream); }

CUstream handle_of(c10::Stream stream) {
  return static_cast<CUstream>(guard().getStreamNativeHandle(stream));
}

void note_use(const c10::DataPtr& memory, c10::Stream stream) {
  guard().recordDataPtrOnStream(memory, stream);
}

bool is_captured(CUstream stream) {
  int32_t status = 0;
  const CUresult result = driver().cuStreamIsCapturing(stream, &status);
  return result != CUDA_SUCCESS || status != 0;
}

c10::DataPtr allocate(int64_t bytes) {
  c10::Allocator* allocator = c10::GetAllocator(c10::DeviceType::CUDA);
  return allocator->allocate(static_cast<size_t>(bytes));
}

void synchronize(CUstream stream) { HOSTJIT_CUDA(cuStreamSynchronize, stream); }

}  // namespace hostjit::cuda
