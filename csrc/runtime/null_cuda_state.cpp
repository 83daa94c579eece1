// SPDX-License-Identifier: Apache-2.0
#include "runtime/null_cuda_state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace hostjit::cuda {
namespace {

constexpr size_t kAlignment = 512;  // of PyTorch's allocator
// Freed memory that is kept, so that its addresses are not given again.
constexpr size_t kKeptBytes = size_t{64} << 20;

struct ThreadState {
  CUcontext context = nullptr;
  std::map<int32_t, CUstream> streams;
};

ThreadState& this_thread() {
  static thread_local ThreadState state;
  return state;
}

// Bytes of a parameter of PTX, such as ".param .align 8 .b8 name[24]".
size_t bytes_of_parameter(std::string_view text) {
  const size_t bracket = text.find('[');
  if (bracket != std::string_view::npos)
    return std::strtoull(text.data() + bracket + 1, nullptr, 10);
  for (const char* kind : {".u", ".s", ".b", ".f"}) {
    for (const size_t bytes : {8, 4, 2, 1}) {
      if (text.find(concat(kind, 8 * bytes, " ")) != std::string_view::npos) return bytes;
    }
  }
  return 8;
}

// The kernels of PTX.
std::map<std::string, CUfunc_st> read_entries(std::string_view text) {
  std::map<std::string, CUfunc_st> functions;
  constexpr std::string_view kEntry = ".entry ";
  for (size_t at = text.find(kEntry); at != std::string_view::npos; at = text.find(kEntry, at)) {
    at += kEntry.size();
    const size_t open = text.find('(', at);
    const size_t close = text.find(')', at);
    if (open == std::string_view::npos || close == std::string_view::npos) break;
    CUfunc_st function;
    const std::string_view name = text.substr(at, open - at);
    function.name = name.substr(0, name.find_first_of(" \n\t"));
    std::string_view list = text.substr(open + 1, close - open - 1);
    for (size_t next = list.find(".param"); next != std::string_view::npos;) {
      list.remove_prefix(next + 6);
      next = list.find(".param");
      function.parameter_bytes.push_back(bytes_of_parameter(list.substr(0, next)));
    }
    functions.emplace(function.name, std::move(function));
  }
  return functions;
}

}  // namespace

void VectorClock::join(const VectorClock& other) {
  for (const auto& [stream, tick] : other.ticks_) {
    int64_t& mine = ticks_[stream];
    mine = std::max(mine, tick);
  }
}

int64_t VectorClock::at(int32_t stream) const {
  const auto found = ticks_.find(stream);
  return found == ticks_.end() ? 0 : found->second;
}

NullCuda::State::State(int32_t num_devices) {
  for (int32_t device = 0; device < num_devices; ++device) {
    contexts_.push_back({device});
    default_streams_.push_back({-device, device, /*is_blocking=*/true, {}});
  }
}

void NullCuda::State::fault(std::string text) {
  note(concat("fault: ", text));
  faults.push_back(std::move(text));
}

CUresult NullCuda::State::enter(const char* function) {
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  const auto found = failures_.find(function);
  if (found == failures_.end() || found->second.after-- > 0) return CUDA_SUCCESS;
  const Failure failure = found->second;
  failures_.erase(found);
  if (failure.sticky) sticky_ = failure.result;
  return failure.result;
}

void NullCuda::State::fail(const std::string& function, CUresult result, int64_t after,
                           bool sticky) {
  sticky_ = CUDA_SUCCESS;
  failures_[function] = {result, after, sticky};
}

bool NullCuda::State::is_context(CUcontext context) const {
  return std::ranges::any_of(contexts_, [&](const CUctx_st& known) { return &known == context; });
}

CUcontext NullCuda::State::current_context() const { return this_thread().context; }

void NullCuda::State::set_current_context(CUcontext context) { this_thread().context = context; }

// Modules and their functions.

CUresult NullCuda::State::load(CUmodule* module, const char* image) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_unique<CUmod_st>();
  made->device = current_context()->device;
  made->functions = read_entries(image);
  if (made->functions.empty()) return CUDA_ERROR_INVALID_IMAGE;
  for (auto& [name, function] : made->functions) function.module = made.get();
  *module = made.get();
  modules_[*module] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::unload(CUmodule module) {
  return modules_.erase(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult NullCuda::State::find_function(CUfunction* function, CUmodule module,
                                        const std::string& name) {
  if (!modules_.contains(module)) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = module->functions.find(name);
  if (found == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *function = &found->second;
  return CUDA_SUCCESS;
}

bool NullCuda::State::is_function(CUfunction function) const {
  return std::ranges::any_of(modules_, [&](const auto& module) {
    return std::ranges::any_of(module.second->functions,
                               [&](const auto& known) { return &known.second == function; });
  });
}

CUresult NullCuda::State::parameter(CUfunction function, size_t index, size_t* offset,
                                    size_t* size) {
  if (!is_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= function->parameter_bytes.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (size_t i = 0; i <= index; ++i) {
    const size_t bytes = function->parameter_bytes[i];
    const size_t alignment = std::min<size_t>(8, bytes);
    *offset = (*offset + alignment - 1) / alignment * alignment;
    if (i < index) *offset += bytes;
  }
  *size = function->parameter_bytes[index];
  return CUDA_SUCCESS;
}

// Streams and events.

CUstream_st* NullCuda::State::stream_of(CUstream handle) {
  if (handle == nullptr) {
    const CUcontext context = current_context();
    return context ? &default_streams_[static_cast<size_t>(context->device)] : nullptr;
  }
  return streams_.contains(handle) ? handle : nullptr;
}

CUstream_st& NullCuda::State::stream_in(CUstream handle, int32_t device) {
  return handle && streams_.contains(handle) ? *handle
                                             : default_streams_[static_cast<size_t>(device)];
}

void NullCuda::State::begin(CUstream_st& stream) {
  stream.clock.join(host_);
  CUstream_st& standard = default_streams_[static_cast<size_t>(stream.device)];
  if (&stream == &standard) {
    for (const auto& [handle, other] : streams_) {
      if (other->is_blocking && other->device == stream.device) stream.clock.join(other->clock);
    }
  } else if (stream.is_blocking) {
    stream.clock.join(standard.clock);
  }
  stream.clock.advance(stream.id);
}

CUresult NullCuda::State::create_stream(CUstream* stream, bool is_blocking) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto made = std::make_unique<CUstream_st>();
  made->id = next_stream_++;
  made->device = current_context()->device;
  made->is_blocking = is_blocking;
  *stream = made.get();
  streams_[*stream] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::destroy_stream(CUstream stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return CUDA_ERROR_INVALID_HANDLE;
  ended_.join(found->second->clock);
  streams_.erase(found);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::synchronize(CUstream stream) {
  const CUstream_st* found = stream_of(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  host_.join(found->clock);
  note(concat("synchronize stream ", found->id));
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::synchronize_context() {
  const CUcontext context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  host_.join(ended_);
  host_.join(default_streams_[static_cast<size_t>(context->device)].clock);
  for (const auto& [handle, stream] : streams_) {
    if (stream->device == context->device) host_.join(stream->clock);
  }
  note(concat("synchronize device ", context->device));
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::create_event(CUevent* event) {
  auto made = std::make_unique<CUevent_st>();
  made->id = next_event_++;
  *event = made.get();
  events_[*event] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::destroy_event(CUevent event) {
  return events_.erase(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult NullCuda::State::record(CUevent event, CUstream stream) {
  CUstream_st* found = stream_of(stream);
  if (found == nullptr || !events_.contains(event)) return CUDA_ERROR_INVALID_HANDLE;
  begin(*found);
  event->recorded = found->clock;
  event->num_launches = num_launches_;
  note(concat("record event ", event->id, " on stream ", found->id));
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::wait(CUstream stream, CUevent event) {
  CUstream_st* found = stream_of(stream);
  if (found == nullptr || !events_.contains(event)) return CUDA_ERROR_INVALID_HANDLE;
  note(concat("stream ", found->id, " waits for event ", event->id));
  begin(*found);
  if (event->recorded) {
    found->clock.join(*event->recorded);
  } else {
    fault(
        concat("stream ", found->id, " waits for event ", event->id, ", which was never recorded"));
  }
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::synchronize(CUevent event) {
  if (!events_.contains(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->recorded) host_.join(*event->recorded);
  note(concat("synchronize event ", event->id));
  return CUDA_SUCCESS;
}

CUresult NullCuda::State::elapsed(float* milliseconds, CUevent begin, CUevent end) {
  if (!events_.contains(begin) || !events_.contains(end)) return CUDA_ERROR_INVALID_HANDLE;
  if (!begin->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = static_cast<float>(end->num_launches - begin->num_launches);
  return CUDA_SUCCESS;
}

// Memory.

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

// PyTorch's side.

CUstream NullCuda::State::current_stream(int32_t device) {
  const auto& streams = this_thread().streams;
  const auto found = streams.find(device);
  return found == streams.end() ? nullptr : found->second;
}

void NullCuda::State::set_current_stream(int32_t device, CUstream stream) {
  this_thread().streams[device] = stream;
}

}  // namespace hostjit::cuda
