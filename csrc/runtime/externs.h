// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "runtime/abi.h"

// What generated code calls. Every function is noexcept: it catches, records the error with the
// frame and returns non-zero. `void*` tensors are at::Tensor*. The LLVM types and the symbol table
// are derived from these declarations and HOSTJIT_FOR_EACH_EXTERN.

namespace hostjit {

extern "C" {

// Makes the tensor of slot `slot` (uninitialised memory of its own) and sets slot_data.
int32_t hostjit_allocate(Frame* frame, int64_t slot) noexcept;

// Makes slot `slot` a view of `source`: the slot's sizes and strides, `offset` elements after the
// first element of `source`. Shares storage and version counter.
int32_t hostjit_view(Frame* frame, void* source, int64_t offset, int64_t slot) noexcept;

// Drops the tensor of a kCall slot.
void hostjit_release(Frame* frame, int64_t slot) noexcept;

// Drops the tensor of an input, if the call gives it up.
void hostjit_release_input(Frame* frame, int64_t input) noexcept;

// After a failure: makes the caller's stream the current one, which waits for the others, drops the
// tensors of all kCall slots and closes the ranges that the call opened.
void hostjit_cleanup(Frame* frame) noexcept;

// Moves the tensor of a kCall slot to an output.
void hostjit_return_slot(Frame* frame, int64_t slot, void** output) noexcept;

// Adds a reference to a tensor for an output.
void hostjit_return_tensor(Frame* frame, void* tensor, void** output) noexcept;

// Counts a write that generated code is about to do to memory that others see. Fails where eager
// mode refuses the write.
int32_t hostjit_bump_version(Frame* frame, void* tensor) noexcept;

// Copies with conversion of strides and dtype, and broadcasting; the version of `out` stays.
int32_t hostjit_copy(Frame* frame, void* source, void* out) noexcept;

// Runs FrameLayout::aten_calls[call]. operands[i] is an at::Tensor*, an
// int64_t* or a double*, as operand_is_tensor and operand_is_f64 say.
int32_t hostjit_aten_call(Frame* frame, int64_t call, void* const* operands) noexcept;

// out = op(lhs) @ op(rhs) * alpha + beta * out in BLAS column-major terms, on raw pointers:
// the exported Fortran gemm of the library that PyTorch uses.
void hostjit_gemm_f32(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const float* a, int64_t lda, const float* b, int64_t ldb,
                      float beta, float* c, int64_t ldc) noexcept;
void hostjit_gemm_f64(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                      double alpha, const double* a, int64_t lda, const double* b, int64_t ldb,
                      double beta, double* c, int64_t ldc) noexcept;

// Calls range(begin, end, arguments) for parts that make up [0, num_items), at least `grain` items
// each, on the threads of PyTorch's intra-op pool: as many as torch.get_num_threads(), one inside
// a parallel region. Returns when all are done.
using RangeFunction = void (*)(int64_t begin, int64_t end, void* const* arguments);
void hostjit_parallel_for(int64_t num_items, int64_t grain, RangeFunction range,
                          void* const* arguments) noexcept;

// y = op(a) @ x * alpha + beta * y, column-major a[m, n].
void hostjit_gemv_f32(bool transpose, int64_t m, int64_t n, float alpha, const float* a,
                      int64_t lda, const float* x, float beta, float* y) noexcept;
void hostjit_gemv_f64(bool transpose, int64_t m, int64_t n, double alpha, const double* a,
                      int64_t lda, const double* x, double beta, double* y) noexcept;

// The general cases, through at::cpu out-variants below the dispatcher (CPU tensors) or the
// dispatcher (others). `bias` may be null.
int32_t hostjit_matmul(Frame* frame, void* lhs, void* rhs, void* out) noexcept;
int32_t hostjit_bmm(Frame* frame, void* lhs, void* rhs, void* out) noexcept;
int32_t hostjit_addmm(Frame* frame, void* bias, void* lhs, void* rhs, double beta, double alpha,
                      void* out) noexcept;
int32_t hostjit_baddbmm(Frame* frame, void* bias, void* lhs, void* rhs, double beta, double alpha,
                        void* out) noexcept;
int32_t hostjit_linear(Frame* frame, void* input, void* weight, void* bias, void* out) noexcept;

// Division by zero in index arithmetic and other errors that generated code finds itself.
void hostjit_fail(Frame* frame, const char* message) noexcept;

// Records one of the errors of a launch_kernel, as throw_kernel_error throws it.
void hostjit_fail_kernel(Frame* frame, const char* error, int64_t value) noexcept;

// Comes before everything else in a program that uses a CUDA device: see begin_device.
int32_t hostjit_begin_device(Frame* frame) noexcept;

// Records that the launch of FrameLayout::device_kernels[kernel] returned the CUresult `result`.
void hostjit_fail_launch(Frame* frame, int64_t kernel, int32_t result) noexcept;

// Records that an integer parameter of a kernel does not hold `value`.
void hostjit_fail_parameter(Frame* frame, const char* kernel, int64_t parameter,
                            int64_t value) noexcept;

// Does the launches of FrameLayout::graphs[graph]; `words` as GraphSpec says.
int32_t hostjit_launch_graph(Frame* frame, int64_t graph, int64_t* words) noexcept;

// Streams and events of the frame, by number: see DeviceStreams. Stream 0 is the caller's.
int32_t hostjit_fork_stream(Frame* frame, int64_t number) noexcept;
int32_t hostjit_enter_stream(Frame* frame, int64_t number, const StreamArg* stream) noexcept;
int32_t hostjit_set_stream(Frame* frame, int64_t number) noexcept;
int32_t hostjit_record_event(Frame* frame, int64_t event, int64_t number) noexcept;
int32_t hostjit_wait_event(Frame* frame, int64_t event, int64_t number) noexcept;
int32_t hostjit_synchronize(Frame* frame, int64_t number) noexcept;
int32_t hostjit_join_streams(Frame* frame) noexcept;
int32_t hostjit_leave_streams(Frame* frame) noexcept;

// Nanoseconds of a steady clock.
int64_t hostjit_now() noexcept;

// Of code that times its nodes: see DeviceTimes.
int32_t hostjit_note_device_time(Frame* frame, int64_t event, int64_t stream) noexcept;
int32_t hostjit_read_device_times(Frame* frame, int64_t num_nodes, int64_t* nanoseconds) noexcept;

// Profiler ranges. Generated code checks hostjit_profiling_enabled() first.
bool hostjit_profiling_enabled(Frame* frame) noexcept;
void hostjit_range_push(Frame* frame, const char* label) noexcept;
void hostjit_range_pop(Frame* frame) noexcept;

}  // extern "C"

#define HOSTJIT_FOR_EACH_EXTERN(X) \
  X(hostjit_allocate)              \
  X(hostjit_view)                  \
  X(hostjit_release)               \
  X(hostjit_release_input)         \
  X(hostjit_cleanup)               \
  X(hostjit_return_slot)           \
  X(hostjit_return_tensor)         \
  X(hostjit_bump_version)          \
  X(hostjit_copy)                  \
  X(hostjit_aten_call)             \
  X(hostjit_parallel_for)          \
  X(hostjit_gemm_f32)              \
  X(hostjit_gemm_f64)              \
  X(hostjit_gemv_f32)              \
  X(hostjit_gemv_f64)              \
  X(hostjit_matmul)                \
  X(hostjit_bmm)                   \
  X(hostjit_addmm)                 \
  X(hostjit_baddbmm)               \
  X(hostjit_linear)                \
  X(hostjit_fail)                  \
  X(hostjit_fail_kernel)           \
  X(hostjit_begin_device)          \
  X(hostjit_fail_launch)           \
  X(hostjit_fail_parameter)        \
  X(hostjit_launch_graph)          \
  X(hostjit_fork_stream)           \
  X(hostjit_enter_stream)          \
  X(hostjit_set_stream)            \
  X(hostjit_record_event)          \
  X(hostjit_wait_event)            \
  X(hostjit_synchronize)           \
  X(hostjit_join_streams)          \
  X(hostjit_leave_streams)         \
  X(hostjit_now)                   \
  X(hostjit_note_device_time)      \
  X(hostjit_read_device_times)     \
  X(hostjit_profiling_enabled)     \
  X(hostjit_range_push)            \
  X(hostjit_range_pop)

}  // namespace hostjit
