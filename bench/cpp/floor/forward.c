// SPDX-License-Identifier: Apache-2.0
#include "forward.h"

#include <math.h>

// Compiled for this machine and with -ffast-math: the compiler takes the C library's vector tanh.

#define LAYER(inputs, outputs, weight, x, start, y)              \
  do {                                                           \
    float sums[outputs];                                         \
    for (int j = 0; j < (outputs); ++j) sums[j] = (start)[j];    \
    _Pragma("GCC unroll 4") for (int i = 0; i < (inputs); ++i) { \
      for (int j = 0; j < (outputs); ++j) {                      \
        sums[j] += (x)[i] * (weight)[i * (outputs) + j];         \
      }                                                          \
    }                                                            \
    for (int j = 0; j < (outputs); ++j) (y)[j] = tanhf(sums[j]); \
  } while (0)

void policy_forward(const float* packed, const float* x, float* y) {
  const float* first = packed;
  const float* first_bias = first + 32 * 64;
  const float* second = first_bias + 64;
  const float* second_bias = second + 64 * 64;
  const float* last = second_bias + 64;
  const float* last_bias = last + 64 * 8;
  float a[64];
  float b[64];
  LAYER(32, 64, first, x, first_bias, a);
  LAYER(64, 64, second, a, second_bias, b);
  LAYER(64, 8, last, b, last_bias, y);
}

void chain_forward(const float* packed, const float* x, float* y) {
  static const float zero[16];
  float a[16];
  for (int j = 0; j < 16; ++j) a[j] = x[j];
  for (int step = 0; step < 32; ++step) LAYER(16, 16, packed, a, zero, a);
  for (int j = 0; j < 16; ++j) y[j] = a[j];
}
