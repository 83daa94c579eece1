// SPDX-License-Identifier: Apache-2.0
// The operations of kernels, each under `op_` and its name, as eager computes them on CUDA.

namespace hostjit {

#define HOSTJIT_FUNCTION(name)                                             \
  __device__ __forceinline__ float op_##name(float x) { return name##f(x); } \
  __device__ __forceinline__ double op_##name(double x) { return name(x); }
#define HOSTJIT_FUNCTION_OF_TWO(name)                                                         \
  __device__ __forceinline__ float op_##name(float x, float y) { return name##f(x, y); }      \
  __device__ __forceinline__ double op_##name(double x, double y) { return name(x, y); }

HOSTJIT_FUNCTION(exp)
HOSTJIT_FUNCTION(exp2)
HOSTJIT_FUNCTION(expm1)
HOSTJIT_FUNCTION(log)
HOSTJIT_FUNCTION(log1p)
HOSTJIT_FUNCTION(log2)
HOSTJIT_FUNCTION(log10)
HOSTJIT_FUNCTION(sin)
HOSTJIT_FUNCTION(cos)
HOSTJIT_FUNCTION(tan)
HOSTJIT_FUNCTION(asin)
HOSTJIT_FUNCTION(acos)
HOSTJIT_FUNCTION(atan)
HOSTJIT_FUNCTION(sinh)
HOSTJIT_FUNCTION(cosh)
HOSTJIT_FUNCTION(tanh)
HOSTJIT_FUNCTION(asinh)
HOSTJIT_FUNCTION(acosh)
HOSTJIT_FUNCTION(atanh)
HOSTJIT_FUNCTION(erf)
HOSTJIT_FUNCTION(erfc)
HOSTJIT_FUNCTION(lgamma)
HOSTJIT_FUNCTION(sqrt)
HOSTJIT_FUNCTION(rsqrt)
HOSTJIT_FUNCTION_OF_TWO(atan2)
HOSTJIT_FUNCTION_OF_TWO(pow)
HOSTJIT_FUNCTION_OF_TWO(hypot)
HOSTJIT_FUNCTION_OF_TWO(copysign)

#undef HOSTJIT_FUNCTION
#undef HOSTJIT_FUNCTION_OF_TWO

__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ float remainder_of(float x, float y) { return fmodf(x, y); }
__device__ __forceinline__ double remainder_of(double x, double y) { return fmod(x, y); }
__device__ __forceinline__ float infinity_like(float) { return __int_as_float(0x7f800000); }
__device__ __forceinline__ double infinity_like(double) {
  return __longlong_as_double(0x7ff0000000000000LL);
}

// Rounding. Integers are their own rounding.

#define HOSTJIT_ROUNDING(name, function)                       \
  template <class T>                                           \
  __device__ __forceinline__ T op_##name(T x) {                \
    if constexpr (is_float<T> && sizeof(T) == 4) {             \
      return function##f(x);                                   \
    } else if constexpr (is_float<T>) {                        \
      return function(x);                                      \
    } else {                                                   \
      return x;                                                \
    }                                                          \
  }

HOSTJIT_ROUNDING(floor, floor)
HOSTJIT_ROUNDING(ceil, ceil)
HOSTJIT_ROUNDING(trunc, trunc)
HOSTJIT_ROUNDING(round, rint)

#undef HOSTJIT_ROUNDING

// Comparisons, tests and selection.

template <class T>
__device__ __forceinline__ bool op_eq(T x, T y) {
  return x == y;
}
template <class T>
__device__ __forceinline__ bool op_ne(T x, T y) {
  return x != y;
}
template <class T>
__device__ __forceinline__ bool op_lt(T x, T y) {
  return x < y;
}
template <class T>
__device__ __forceinline__ bool op_le(T x, T y) {
  return x <= y;
}
template <class T>
__device__ __forceinline__ bool op_gt(T x, T y) {
  return x > y;
}
template <class T>
__device__ __forceinline__ bool op_ge(T x, T y) {
  return x >= y;
}
template <class T>
__device__ __forceinline__ T op_where(bool condition, T yes, T no) {
  return condition ? yes : no;
}
template <class T>
__device__ __forceinline__ bool op_isnan(T x) {
  return x != x;
}
template <class T>
__device__ __forceinline__ bool op_isinf(T x) {
  if constexpr (is_float<T>) return magnitude(x) == infinity_like(x);
  return false;
}
template <class T>
__device__ __forceinline__ bool op_isfinite(T x) {
  if constexpr (is_float<T>) return magnitude(x) < infinity_like(x);
  return true;
}
template <class T>
__device__ __forceinline__ T op_nan_to_num(T x, T nan, T positive, T negative) {
  if (op_isnan(x)) return nan;
  if (x == infinity_like(x)) return positive;
  return x == -infinity_like(x) ? negative : x;
}
template <class T>
__device__ __forceinline__ T op_heaviside(T x, T at_zero) {
  return x == T(0) ? at_zero : static_cast<T>(x > T(0));
}
template <class T>
__device__ __forceinline__ T op_threshold(T x, T limit, T replacement) {
  return x <= limit ? replacement : x;
}

// Arithmetic. Integers wrap; bool adds and multiplies as truth does.

template <class T>
__device__ __forceinline__ T op_add(T x, T y) {
  if constexpr (is_float<T>) return x + y;
  if constexpr (is_bool<T>) return x || y;
  return static_cast<T>(static_cast<Unsigned<T>>(x) + static_cast<Unsigned<T>>(y));
}
template <class T>
__device__ __forceinline__ T op_sub(T x, T y) {
  if constexpr (is_float<T>) return x - y;
  return static_cast<T>(static_cast<Unsigned<T>>(x) - static_cast<Unsigned<T>>(y));
}
template <class T>
__device__ __forceinline__ T op_mul(T x, T y) {
  if constexpr (is_float<T>) return x * y;
  if constexpr (is_bool<T>) return x && y;
  return static_cast<T>(static_cast<Unsigned<T>>(x) * static_cast<Unsigned<T>>(y));
}
template <class T>
__device__ __forceinline__ T op_neg(T x) {
  if constexpr (is_float<T>) return -x;
  return op_sub(T(0), x);
}
template <class T>
__device__ __forceinline__ T op_abs(T x) {
  if constexpr (is_float<T>) return magnitude(x);
  return x < T(0) ? op_neg(x) : x;
}
template <class T>
__device__ __forceinline__ T op_div(T x, T y) {
  return x / y;
}

// A number that many are divided by. Products with the reciprocal are less exact than quotients by
// one place of float, which is none of a half type. The scale keeps the reciprocal of a very large or
// very small number from being none.
struct Divisor {
  float reciprocal;
  float scale;
};
__device__ __forceinline__ Divisor divisor_of(float number) {
  const float size = magnitude(number);
  const float scale = size < 0x1p-60f ? 0x1p64f : size > 0x1p60f ? 0x1p-64f : 1.0f;
  return {1.0f / (number * scale), scale};
}
__device__ __forceinline__ float divided(float x, Divisor by) {
  return x * by.reciprocal * by.scale;
}

// The power of a distance from the largest of a row, which is at most 0. In float it would be wrong by
// 1e-5 of itself, far from the largest; half types have 5e-4.
__device__ __forceinline__ float exp_to_round(float x) {
#ifdef __CUDA_ARCH__
  float power;
  asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(x * 0x1.715476p+0f));
  return power;
#else
  return expf(x);
#endif
}

// The divisor, or 1 for what no integer can be divided by without a fault or an overflow.
template <class T>
__device__ __forceinline__ T safe_divisor(T y) {
  return y == T(0) || (is_signed<T> && y == static_cast<T>(-1)) ? T(1) : y;
}
template <class T>
__device__ __forceinline__ T op_div_trunc(T x, T y) {
  if constexpr (is_float<T>) {
    return op_trunc(x / y);
  } else {
    return is_signed<T> && y == static_cast<T>(-1) ? op_neg(x)
                                                   : static_cast<T>(x / safe_divisor(y));
  }
}
template <class T>
__device__ __forceinline__ T op_fmod(T x, T y) {
  if constexpr (is_float<T>) {
    return remainder_of(x, y);
  } else {
    return static_cast<T>(x % safe_divisor(y));
  }
}
template <class T>
__device__ __forceinline__ bool signs_differ(T modulus, T divisor) {
  return modulus != T(0) && (divisor < T(0)) != (modulus < T(0));
}
template <class T>
__device__ __forceinline__ T op_div_floor(T x, T y) {
  if constexpr (is_float<T>) {
    if (y == T(0)) return x / y;
    const T modulus = remainder_of(x, y);
    T quotient = (x - modulus) / y;
    if (signs_differ(modulus, y)) quotient -= T(1);
    if (quotient == T(0)) return op_copysign(T(0), x / y);
    const T floor = op_floor(quotient);
    return quotient - floor > T(0.5) ? floor + T(1) : floor;
  } else {
    const T quotient = op_div_trunc(x, y);
    return signs_differ(op_fmod(x, y), y) ? op_sub(quotient, T(1)) : quotient;
  }
}
template <class T>
__device__ __forceinline__ T op_remainder(T x, T y) {
  const T modulus = op_fmod(x, y);
  return signs_differ(modulus, y) ? op_add(modulus, y) : modulus;
}
template <class T>
__device__ __forceinline__ T op_maximum(T x, T y) {
  return x > y || x != x ? x : y;
}
template <class T>
__device__ __forceinline__ T op_minimum(T x, T y) {
  return x < y || x != x ? x : y;
}
template <class T>
__device__ __forceinline__ T op_fmax(T x, T y) {
  return x > y || y != y ? x : y;
}
template <class T>
__device__ __forceinline__ T op_fmin(T x, T y) {
  return x < y || y != y ? x : y;
}
template <class T>
__device__ __forceinline__ T op_clamp(T x, T low, T high) {
  return op_minimum(high, op_maximum(low, x));
}
template <class T>
__device__ __forceinline__ T op_reciprocal(T x) {
  return T(1) / x;
}
template <class T>
__device__ __forceinline__ T op_square(T x) {
  return op_mul(x, x);
}
template <class T>
__device__ __forceinline__ T op_lerp(T start, T end, T weight) {
  return magnitude(weight) < T(0.5) ? start + weight * (end - start)
                                    : end - (end - start) * (T(1) - weight);
}
template <class T>
__device__ __forceinline__ T op_multiply_add(T x, T y, T z) {
  return x * y + z;
}
template <class T>
__device__ __forceinline__ T op_addcmul(T x, T y, T z, T factor) {
  return op_add(x, op_mul(factor, op_mul(y, z)));
}
template <class T>
__device__ __forceinline__ T op_addcdiv(T x, T y, T z, T factor) {
  return x + factor * (y / z);
}

// Bits.

template <class T>
__device__ __forceinline__ T op_bitwise_and(T x, T y) {
  return static_cast<T>(x & y);
}
template <class T>
__device__ __forceinline__ T op_bitwise_or(T x, T y) {
  return static_cast<T>(x | y);
}
template <class T>
__device__ __forceinline__ T op_bitwise_xor(T x, T y) {
  return static_cast<T>(x ^ y);
}
template <class T>
__device__ __forceinline__ T op_bitwise_not(T x) {
  if constexpr (is_bool<T>) return !x;
  return static_cast<T>(~static_cast<Unsigned<T>>(x));
}
__device__ __forceinline__ bool op_logical_and(bool x, bool y) { return x && y; }
__device__ __forceinline__ bool op_logical_or(bool x, bool y) { return x || y; }
__device__ __forceinline__ bool op_logical_xor(bool x, bool y) { return x != y; }
__device__ __forceinline__ bool op_logical_not(bool x) { return !x; }
template <class T>
__device__ __forceinline__ T op_shift_left(T x, T amount) {
  if (amount < T(0) || amount >= T(8 * sizeof(T))) return T(0);
  return static_cast<T>(static_cast<Unsigned<T>>(x) << amount);
}
template <class T>
__device__ __forceinline__ T op_shift_right(T x, T amount) {
  constexpr int kMost = 8 * sizeof(T) - is_signed<T>;
  if (amount >= T(0) && amount < T(kMost)) return static_cast<T>(x >> amount);
  return is_signed<T> && x < T(0) ? static_cast<T>(-1) : T(0);
}

// Signs.

template <class T>
__device__ __forceinline__ T op_frac(T x) {
  return x - op_trunc(x);
}
template <class T>
__device__ __forceinline__ T op_sign(T x) {
  return static_cast<T>((T(0) < x) - (x < T(0)));
}
__device__ __forceinline__ bool op_signbit(float x) { return __float_as_int(x) < 0; }
__device__ __forceinline__ bool op_signbit(double x) { return __double_as_longlong(x) < 0; }
template <class T>
__device__ __forceinline__ bool op_signbit(T x) {
  return x < T(0);
}

// Activations.

template <class T>
__device__ __forceinline__ T op_sigmoid(T x) {
  return T(1) / (T(1) + op_exp(-x));
}
template <class T>
__device__ __forceinline__ T op_silu(T x) {
  return x / (T(1) + op_exp(-x));
}
template <class T>
__device__ __forceinline__ T op_log_sigmoid(T x) {
  return op_minimum(x, T(0)) - op_log1p(op_exp(-magnitude(x)));
}
template <class T>
__device__ __forceinline__ T op_gelu(T x) {
  return x * T(0.5) * (T(1) + op_erf(x * T(0.70710678118654752440)));
}
template <class T>
__device__ __forceinline__ T op_gelu_tanh(T x) {
  const T inner = T(0.79788456080286535588) * (x + T(0.044715) * (x * x * x));
  return T(0.5) * x * (T(1) + op_tanh(inner));
}
template <class T>
__device__ __forceinline__ T op_relu(T x) {
  return op_maximum(T(0), x);
}
template <class T>
__device__ __forceinline__ T op_relu6(T x) {
  return op_clamp(x, T(0), T(6));
}
template <class T>
__device__ __forceinline__ T op_leaky_relu(T x, T slope) {
  return x > T(0) ? x : x * slope;
}
template <class T>
__device__ __forceinline__ T op_elu(T x, T alpha, T scale, T input_scale) {
  return x > T(0) ? x * scale : op_expm1(x * input_scale) * (alpha * scale);
}
template <class T>
__device__ __forceinline__ T op_softplus(T x, T beta, T limit) {
  return x * beta > limit ? x : op_log1p(op_exp(x * beta)) / beta;
}
template <class T>
__device__ __forceinline__ T op_mish(T x) {
  return x * op_tanh(op_log1p(op_exp(x)));
}
template <class T>
__device__ __forceinline__ T op_hardsigmoid(T x) {
  return op_relu6(x + T(3)) * T(1.0 / 6.0);
}
template <class T>
__device__ __forceinline__ T op_hardswish(T x) {
  return x * op_relu6(x + T(3)) * T(1.0 / 6.0);
}

}  // namespace hostjit
