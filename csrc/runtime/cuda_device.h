// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>

#include "runtime/cuda_types.h"

// PyTorch's side of CUDA, found at run time: its current device, its current streams, its memory.

namespace hostjit::cuda {

// The calling thread's current device. Throws Error when PyTorch has no CUDA.
int32_t current_device();
void set_current_device(int32_t device);

// Makes the primary context of a device, PyTorch's too, the calling thread's context. Called when
// the device is current.
void require_context(int32_t device);

// The stream that PyTorch's work on a device goes to.
CUstream current_stream(int32_t device);

// Whether somebody makes a graph of the work of a stream instead of doing it; also where that can't
// be known.
bool is_captured(CUstream stream);

// PyTorch's streams: the current one of a device, one of its pool, the one of an id; and making one
// the current one of its device.
c10::Stream torch_stream(int32_t device);
c10::Stream pool_stream(int32_t device);
c10::Stream torch_stream_of(int64_t id, int32_t device);
void set_torch_stream(c10::Stream stream);
CUstream handle_of(c10::Stream stream);

// Memory that was allocated for another stream is used on this one until it is freed: then it is
// not given to others before this stream is done with it.
void note_use(const c10::DataPtr& memory, c10::Stream stream);

// Memory of the current device for work on its current stream; what is freed serves that stream
// again. Throws c10::OutOfMemoryError.
c10::DataPtr allocate(int64_t bytes);

// Waits for the work on a stream.
void synchronize(CUstream stream);

}  // namespace hostjit::cuda
