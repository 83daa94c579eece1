// SPDX-License-Identifier: Apache-2.0
// Memory of the null device, and who may use it when.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/null_cuda_state.h"

namespace hostjit::cuda {
namespace {

constexpr size_t kAlignment = 512;  // of PyTorch's allocator
// Freed memory that is kept, so that its addresses are not given again.
constexpr size_t kKeptBytes = size_t{64} << 20;

}  // namespace

std::map<CUdeviceptr, NullCuda::State::Allocation>::iterator NullCuda::State::find_allocation(
    CUdeviceptr address) {
  auto found = allocations_.upper_bound(address);
  if (found == allocations_.begin()) return allocations_.end();
  --found;
  return address < found->first + found->second.bytes ? found : allocations_.end();
}

std::string NullCuda::State::name_of(CUdeviceptr address) {
  const auto found = find_allocation(address);
  if (found == allocations_.end()) return "";
  const CUdeviceptr offset = address - found->first;
  return concat("a", found->second.number, offset ? concat("+", offset) : "");
}

CUdeviceptr NullCuda::State::allocate(size_t bytes, int32_t device, CUstream stream) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) return 0;
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  Allocation made;
  made.number = next_allocation_++;
  made.bytes = rounded;
  made.device = device;
  made.stream = stream;
  const CUstream_st& owner = stream_in(made.stream, device);
  // What it was before may be in use by this stream up to here.
  made.accesses.push_back(
      {address, address + rounded, {owner.id, owner.clock.at(owner.id)}, /*is_write=*/true});
  note(concat("allocate a", made.number, ": ", bytes, " bytes"));
  allocations_[address] = std::move(made);
  bytes_allocated += static_cast<int64_t>(rounded);
  return address;
}

void NullCuda::State::free(CUdeviceptr memory) {
  const auto found = allocations_.find(memory);
  if (found == allocations_.end() || !found->second.is_live) {
    return fault(concat("free of ", memory, ", which is no allocation"));
  }
  Allocation& allocation = found->second;
  // The allocator gives it to the next allocation of its stream, without waiting for others.
  const CUstream_st& stream = stream_in(allocation.stream, allocation.device);
  VectorClock clock = stream.clock;
  clock.join(host_);
  for (CUstream user : allocation.users) clock.join(stream_in(user, allocation.device).clock);
  for (const MemoryAccess& access : allocation.accesses) {
    if (access.moment.is_before(clock)) continue;
    fault(concat("a", allocation.number, " of stream ", stream.id, " is freed while stream ",
                 access.moment.stream, " may use it"));
    break;
  }
  note(concat("free a", allocation.number));
  allocation.is_live = false;
  bytes_allocated -= static_cast<int64_t>(allocation.bytes);
  std::memset(reinterpret_cast<void*>(memory), 0xFD, allocation.bytes);
  freed_.push_back(memory);
  freed_bytes_ += allocation.bytes;
  while (freed_bytes_ > kKeptBytes) {
    const auto oldest = allocations_.find(freed_.front());
    freed_.pop_front();
    freed_bytes_ -= oldest->second.bytes;
    std::free(reinterpret_cast<void*>(oldest->first));
    allocations_.erase(oldest);
  }
}

void NullCuda::State::note_use(CUdeviceptr memory, CUstream stream) {
  const auto found = find_allocation(memory);
  if (found != allocations_.end()) found->second.users.insert(stream);
}

void NullCuda::State::access(CUdeviceptr address, size_t bytes, bool is_write, int32_t stream,
                             const VectorClock& clock, const std::string& who) {
  const auto found = find_allocation(address);
  if (found == allocations_.end()) return;
  Allocation& allocation = found->second;
  if (!allocation.is_live) return fault(concat(who, " uses ", name_of(address), " after its free"));
  const MemoryAccess now{address, address + bytes, {stream, clock.at(stream)}, is_write};
  if (now.end > found->first + allocation.bytes) {
    fault(concat(who, " goes beyond a", allocation.number));
  }
  for (const MemoryAccess& before : allocation.accesses) {
    const bool meet = before.begin < now.end && now.begin < before.end;
    if (!meet || (!is_write && !before.is_write) || before.moment.is_before(clock)) continue;
    fault(concat(who, is_write ? " writes " : " reads ", name_of(address), ", which stream ",
                 before.moment.stream, before.is_write ? " wrote" : " read",
                 ", without waiting for it"));
  }
  std::erase_if(allocation.accesses, [&](const MemoryAccess& before) {
    const bool is_covered = now.begin <= before.begin && before.end <= now.end;
    return is_covered && (is_write || (!before.is_write && before.moment.is_before(clock)));
  });
  allocation.accesses.push_back(now);
}

CUresult NullCuda::State::copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CUstream_st* found = stream_of(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  begin(*found);
  const auto name = [&](CUdeviceptr address) {
    const std::string known = name_of(address);
    return known.empty() ? "the host" : known;
  };
  note(concat("copy ", bytes, " bytes from ", name(from), " to ", name(to), " on stream ",
              found->id));
  access(from, bytes, /*is_write=*/false, found->id, found->clock, "a copy");
  access(to, bytes, /*is_write=*/true, found->id, found->clock, "a copy");
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::fill(CUdeviceptr to, uint8_t value, size_t bytes, CUstream stream) {
  CUstream_st* found = stream_of(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  begin(*found);
  note(concat("fill ", bytes, " bytes of ", name_of(to), " on stream ", found->id));
  access(to, bytes, /*is_write=*/true, found->id, found->clock, "a fill");
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return CUDA_SUCCESS;
}

}  // namespace hostjit::cuda
