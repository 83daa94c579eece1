// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "runtime/abi.h"
#include "runtime/device_graph.h"
#include "runtime/device_streams.h"
#include "runtime/device_times.h"
#include "runtime/kept_tensors.h"
#include "runtime/profiler_range.h"

namespace hostjit {

struct AlignedDelete {
  std::align_val_t alignment{};
  void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
};
using AlignedMemory = std::unique_ptr<std::byte, AlignedDelete>;

// Uninitialised; at least one byte.
inline AlignedMemory allocate_aligned(size_t bytes, size_t alignment) {
  const std::align_val_t align{alignment};
  return {static_cast<std::byte*>(::operator new(bytes ? bytes : 1, align)), AlignedDelete{align}};
}

// Memory for the buffers of one call in flight.
struct Arena {
  AlignedMemory memory;
  int64_t bytes = 0;
};

// A Frame and what it points at. Every Frame is one. Used by one thread at a time.
struct FrameStorage : Frame {
  AlignedMemory memory;
  Arena* shared_arena = nullptr;  // of a call of a row, instead of `memory`
  c10::DataPtr device_memory;     // Frame::device_arena
  bool device_memory_is_of_call = false;
  bool arena_is_captured = false;     // a graph that somebody made has its addresses
  bool changed_stream = false;        // some call was on another stream than init
  DeviceStreams device_streams;       // Frame::streams
  DeviceTimes device_times;           // of code that times its nodes
  std::vector<DeviceGraph> graphs;    // of FrameLayout::graphs, after the first launch of one
  int32_t device_before = -1;         // of the call under way, where it had to be changed
  std::vector<at::Tensor> tensors;    // Frame::slots
  std::vector<void*> first_elements;  // Frame::slot_data
  std::vector<int64_t> call_slots;    // the kCall slots, which cleanup empties
  // Not null: the call writes the tensors it returns into those kept here, where there is one, and
  // keeps what it returns.
  KeptTensors* kept = nullptr;
  std::exception_ptr error;
  // Ranges that the call under way opened, innermost last.
  std::vector<std::unique_ptr<ProfilerRange>> ranges;

  static FrameStorage& of(Frame* frame) { return *static_cast<FrameStorage*>(frame); }
  static const FrameStorage& of(const Frame* frame) {
    return *static_cast<const FrameStorage*>(frame);
  }

  void put(int64_t slot, at::Tensor tensor) {
    first_elements[slot] = tensor.unsafeGetTensorImpl()->mutable_data();
    tensors[slot] = std::move(tensor);
  }
  // The same for a tensor made just now, whose first element is `data`.
  void put_new(int64_t slot, at::Tensor tensor, void* data) {
    first_elements[slot] = data;
    tensors[slot] = std::move(tensor);
  }
  // Moves the header of a slot to other memory.
  void move_header(int64_t slot, std::byte* data) {
    at::Tensor& tensor = tensors[slot];
    const c10::Device device = tensor.device();
    tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        c10::DataPtr(data, device));
    first_elements[slot] = data;
  }
  void drop(int64_t slot) {
    tensors[slot].reset();
    first_elements[slot] = nullptr;
  }
  // A call left something in it: see ProgramState::settle.
  bool is_unsettled() const {
    return kept || shared_arena || device_memory_is_of_call || error || device_before >= 0 ||
           !ranges.empty();
  }
  void close_ranges() {
    while (!ranges.empty()) ranges.pop_back();
  }
};

}  // namespace hostjit
