// SPDX-License-Identifier: Apache-2.0
// Elements in memory and in registers: types, conversions, vectors of 16 bytes, bounds.

namespace hostjit {

// Of the half types only the bits: they are computed on as float.
struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

template <class T>
constexpr bool is_float = false;
template <>
constexpr bool is_float<float> = true;
template <>
constexpr bool is_float<double> = true;

template <class T>
constexpr bool is_bool = false;
template <>
constexpr bool is_bool<bool> = true;

template <class T>
constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(0);

// The unsigned type that integers of type T wrap in without being promoted to a signed one.
template <int kBytes>
struct UnsignedOf {
  using Type = unsigned int;
};
template <>
struct UnsignedOf<8> {
  using Type = unsigned long long;
};
template <class T>
using Unsigned = typename UnsignedOf<sizeof(T)>::Type;

// V neighbours in memory, which one instruction moves where V * sizeof(T) is 16 or less.
template <class T, int V>
struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) Vector {
  T element[V];
};

template <int V, class T>
__device__ __forceinline__ Vector<T, V> load_vector(const T* place) {
  return *reinterpret_cast<const Vector<T, V>*>(place);
}

template <class T, int V>
__device__ __forceinline__ void store_vector(T* place, const Vector<T, V>& elements) {
  *reinterpret_cast<Vector<T, V>*>(place) = elements;
}

// Whether vectors of V elements may start here.
template <int V, class T>
__device__ __forceinline__ bool starts_vector(const T* place) {
  return reinterpret_cast<unsigned long long>(place) % alignof(Vector<T, V>) == 0;
}

// Conversions to the half type that a pointer is to.
__device__ __forceinline__ f16 to_f16(float x);
__device__ __forceinline__ bf16 to_bf16(float x);
__device__ __forceinline__ f16 to_half(f16*, float x) { return to_f16(x); }
__device__ __forceinline__ bf16 to_half(bf16*, float x) { return to_bf16(x); }

// Coordinates, which are never negative: unsigned divisions are shorter.
template <class I>
__device__ __forceinline__ I quotient(I x, I y) {
  return static_cast<I>(static_cast<Unsigned<I>>(x) / static_cast<Unsigned<I>>(y));
}
template <class I>
__device__ __forceinline__ I rest(I x, I y) {
  return static_cast<I>(static_cast<Unsigned<I>>(x) % static_cast<Unsigned<I>>(y));
}

// What is in memory, as a register holds it.
template <class T>
__device__ __forceinline__ T widen(T stored) {
  return stored;
}

// Any byte but zero is true.
__device__ __forceinline__ bool to_bool(unsigned char stored) { return stored != 0; }

__device__ __forceinline__ float widen(bf16 stored) {
  return __int_as_float(static_cast<int>(static_cast<unsigned int>(stored.bits) << 16));
}

#ifdef __CUDA_ARCH__
template <class To, class From>
__device__ __forceinline__ To float_to_integer(From x) {
  return static_cast<To>(x);
}

__device__ __forceinline__ float widen(f16 stored) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(stored.bits));
  return wide;
}

__device__ __forceinline__ f16 to_f16(float x) {
  f16 narrow;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
  return narrow;
}

__device__ __forceinline__ bf16 to_bf16(float x) {
  bf16 narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
  return narrow;
}

__device__ __forceinline__ unsigned int to_pair(f16*, float first, float second) {
  unsigned int pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

__device__ __forceinline__ unsigned int to_pair(bf16*, float first, float second) {
  unsigned int pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
#endif

// Stores floats, rounded to a half type; two are converted at once.
template <class T, int V>
__device__ __forceinline__ void store_rounded(T* place, const Vector<float, V>& elements) {
#ifdef __CUDA_ARCH__
  if constexpr (V > 1) {
    Vector<unsigned int, V / 2> pairs;
#pragma unroll
    for (int e = 0; e < V / 2; ++e) {
      pairs.element[e] = to_pair(place, elements.element[2 * e], elements.element[2 * e + 1]);
    }
    store_vector(reinterpret_cast<unsigned int*>(place), pairs);
    return;
  }
#endif
#pragma unroll
  for (int e = 0; e < V; ++e) place[e] = to_half(place, elements.element[e]);
}

// Conversions between registers, as the hardware makes them.
template <class To, class From>
__device__ __forceinline__ To convert(From x) {
  if constexpr (is_bool<To>) {
    return x != From(0);
  } else if constexpr (is_float<From> && !is_float<To>) {
    if constexpr (sizeof(To) == 1 && !is_signed<To>) {
      return static_cast<To>(float_to_integer<long long>(x));
    } else {
      return float_to_integer<To>(x);
    }
  } else {
    return static_cast<To>(x);
  }
}

// The place that an index means among `size`; the launch fails where it is none, as eager's does.
__device__ __forceinline__ long long bounded(long long index, long long size, bool wraps,
                                             const char* error, const char* kernel) {
  const long long place = wraps && index < 0 ? index + size : index;
  if (static_cast<unsigned long long>(place) >= static_cast<unsigned long long>(size)) {
    __assertfail(error, kernel, 0, kernel, sizeof(char));
  }
  return place;
}

}  // namespace hostjit
