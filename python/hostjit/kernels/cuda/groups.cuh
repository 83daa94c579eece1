// SPDX-License-Identifier: Apache-2.0
// Reductions over the threads that share a row. Their order is fixed, so results are reproducible.

namespace hostjit {

struct Sum {
  template <class T>
  __device__ __forceinline__ static T combine(T x, T y) {
    return op_add(x, y);
  }
};
struct Product {
  template <class T>
  __device__ __forceinline__ static T combine(T x, T y) {
    return op_mul(x, y);
  }
};
// Which of two zeros wins is left open, as it is in eager.
struct Largest {
  template <class T>
  __device__ __forceinline__ static T combine(T x, T y) {
    return op_maximum(x, y);
  }
#ifdef __CUDA_ARCH__
  __device__ __forceinline__ static float combine(float x, float y) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
    return larger;
  }
#endif
};
struct Smallest {
  template <class T>
  __device__ __forceinline__ static T combine(T x, T y) {
    return op_minimum(x, y);
  }
#ifdef __CUDA_ARCH__
  __device__ __forceinline__ static float combine(float x, float y) {
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(x), "f"(y));
    return smaller;
  }
#endif
};

// Shuffles move 4 or 8 bytes.
template <class T>
__device__ __forceinline__ T shuffled(T x, int distance, int width) {
  if constexpr (sizeof(T) < 4) {
    return static_cast<T>(__shfl_xor_sync(0xffffffffu, static_cast<int>(x), distance, width));
  } else {
    return __shfl_xor_sync(0xffffffffu, x, distance, width);
  }
}

// Combines over `kThreads` neighbouring threads, a power of two: parts of a warp, or all of a block
// if they are more than 32. Every thread of the block calls it, and gets the result.
template <class Reduction, int kThreads, class T>
__device__ __forceinline__ T reduce_neighbours(T x) {
  constexpr int kLanes = kThreads < 32 ? kThreads : 32;
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x = Reduction::combine(x, shuffled(x, distance, kLanes));
  }
  if constexpr (kThreads > 32) {
    constexpr int kWarps = kThreads / 32;
    __shared__ T partial[kWarps];
    __syncthreads();  // an earlier reduction may still be read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    x = partial[threadIdx.x % kWarps];
#pragma unroll
    for (int distance = kWarps / 2; distance > 0; distance /= 2) {
      x = Reduction::combine(x, shuffled(x, distance, kWarps));
    }
  }
  return x;
}

// Combines over the `kThreads` threads of a block that are `kColumns` apart, powers of two. Every
// thread of the block calls it, and gets the result of its column.
template <class Reduction, int kColumns, int kThreads, class T>
__device__ __forceinline__ T reduce_columns(T x) {
  if constexpr (kThreads == 1) return x;
  __shared__ T partial[kColumns * kThreads];
  __syncthreads();  // an earlier reduction may still be read
  partial[threadIdx.x] = x;
#pragma unroll
  for (int distance = kThreads / 2; distance > 0; distance /= 2) {
    __syncthreads();
    if (threadIdx.x < distance * kColumns) {
      partial[threadIdx.x] =
          Reduction::combine(partial[threadIdx.x], partial[threadIdx.x + distance * kColumns]);
    }
  }
  __syncthreads();
  return partial[threadIdx.x % kColumns];
}

}  // namespace hostjit
