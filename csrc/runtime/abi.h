// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/device.h"
#include "support/dtype.h"
#include "support/literal.h"

// The binary contract between generated code, the runtime and the call path. Plain data: no torch,
// no LLVM. Generated code addresses the fields by offsetof.

namespace hostjit {

// What inputs[i] points at when input i is a tensor. An input of type index, bool or f64 points at
// an int64_t, an int64_t of 0 or 1, or a double.
struct TensorArg {
  void* data;              // first element
  const int64_t* sizes;    // one per dim
  const int64_t* strides;  // in elements
  void* tensor;            // at::Tensor*, borrowed for the call
};

// What inputs[i] points at when input i is a stream.
struct StreamArg {
  int64_t id;      // of PyTorch's c10::Stream
  int32_t device;  // index of the CUDA device
};

class ProgramState;

// What one call in flight needs. A slot holds an at::Tensor (one pointer wide): a header over
// planned memory or a constant, made with the frame; or, empty between calls, a tensor that one
// call makes.
struct Frame {
  std::byte* arena;
  void* slots;       // at::Tensor[]
  void** slot_data;  // first element of each slot's tensor, valid while it holds one
  int64_t node;      // index into FrameLayout::nodes of the fallible op under way
  ProgramState* program;
  const int64_t* row;  // what depends on sizes of inputs, see RowContents; null without symbols
  // Of a program that uses a CUDA device; the first two are set by hostjit_begin_device.
  void* stream;  // CUstream: the current one
  std::byte* device_arena;
  void* const* device_functions;  // cuLaunchKernelEx, then the CUfunction of each kernel
  // The CUstreams that the program's ops have numbers of; valid where such an op stands. The first
  // is the caller's.
  void* const* streams;
  // What the call gives up: one at::Tensor per input of the program; null when it keeps all of
  // them. They are what TensorArg::tensor points at.
  void* donated;
};

// 0: outputs are set. Otherwise the error is recorded with the frame, outputs are unset and every
// tensor the call made is released.
//
// inputs[-1] is the Frame*. outputs[i] receives an owned reference (c10::TensorImpl*) for a tensor
// and is written through as int64_t or double bits for a scalar. What depends on the sizes of
// inputs is in the frame's row; a static program has it folded to constants. cache_id is 0.
using MainFunction = int32_t (*)(int64_t cache_id, void* const* inputs, void** outputs);

// A kernel called with an array: the data pointers of inputs, in_out and outputs, then pointers to
// the scalars (int64_t or double), to the int64_t[2] of its failure if it can fail, and to the
// bounds of its range if it does one. Of a kernel with a signature, pointers and pointers to
// numbers of its types, in its order, then the bounds.
using PackedKernel = void (*)(void* const* arguments);

struct TensorSpec {
  DType dtype = DType::kF32;
  Device device;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

enum class SlotKind : uint8_t {
  kArena,        // header at `offset` bytes of the arena
  kDeviceArena,  // header at `offset` bytes of the device's arena
  kConstant,     // header at `offset` bytes of FrameLayout::constants
  kCall,         // made and released by a call
  kFrame,        // made by init, released with the frame
};

struct SlotSpec {
  SlotKind kind = SlotKind::kCall;
  int64_t offset = 0;
  TensorSpec type;
};

// One aten_call node. `arguments` refers to operands by $i. Result i goes to result_slots[i] and
// must have the dtype, device, sizes and strides of that slot; -1 drops it.
struct AtenCallSpec {
  std::string target;
  std::vector<Literal> arguments;
  // Types of the operands: true for a tensor (at::Tensor*), false for a scalar (int64_t*).
  std::vector<bool> operand_is_tensor;
  std::vector<int64_t> result_slots;
  // True for a scalar that is an f64 (double*); empty when none is.
  std::vector<bool> operand_is_f64 = {};
};

// A kernel for the program's CUDA device.
struct DeviceKernelSpec {
  std::string name;
  std::string image;  // PTX or a cubin
  std::string entry;
  std::vector<int64_t> parameter_bytes;
  int64_t shared_memory = 0;  // the most dynamic shared memory that a launch asks for, in bytes
  uint64_t function = 0;      // a CUfunction that somebody else loaded; then there is no image
};

// A launch as a node of a graph.
struct GraphNodeSpec {
  int64_t kernel = 0;  // into FrameLayout::device_kernels
  int64_t node = 0;    // into FrameLayout::nodes
  int64_t first_word = 0;
  int64_t num_parameters = 0;
  int64_t shared_memory = 0;
  std::vector<int64_t> dependencies = {};  // nodes before it
};

// A run of launches that may be one CUDA graph. Generated code describes one call by an array of
// `num_words` words: from GraphNodeSpec::first_word on the three sizes of the grid, the three of
// the block, and the parameters, each in the first bytes of a word.
struct GraphSpec {
  int64_t num_words = 0;
  std::vector<GraphNodeSpec> nodes = {};
};

// For messages: the op and the user's "file:line" (or empty).
struct NodeInfo {
  std::string op;
  std::string location;
};

// Everything a frame and its program state are made from; comes out of code generation. Of a
// program with symbols, it lacks the bytes of the arenas and of slots the sizes, strides and
// offsets: they are those of a row.
struct FrameLayout {
  int64_t arena_bytes = 0;
  int64_t alignment = 64;
  std::vector<std::byte> constants;
  std::vector<SlotSpec> slots;
  std::vector<AtenCallSpec> aten_calls;
  std::vector<NodeInfo> nodes;
  int32_t device = -1;  // index of the CUDA device in use
  int64_t device_arena_bytes = 0;
  std::vector<DeviceKernelSpec> device_kernels;
  std::vector<GraphSpec> graphs;
  bool nvtx = false;        // the knob nvtx when it was compiled
  int64_t num_streams = 0;  // besides the caller's
  int64_t num_events = 0;
  bool graphs_always = false;  // the knob cuda_graphs_always when it was compiled
};

// What one row adds to the layout of a program with symbols.
struct RowContents {
  // The values of the symbols (RowSymbols), then where each block of the arena begins, and each of
  // the device's, in bytes.
  std::vector<int64_t> table;
  int64_t arena_bytes = 0;
  int64_t device_arena_bytes = 0;
  std::vector<SlotSpec> slots;
};

}  // namespace hostjit
