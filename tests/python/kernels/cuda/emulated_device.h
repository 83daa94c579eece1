// SPDX-License-Identifier: Apache-2.0
// CUDA C++ as C++: threads of a block are fibers, which wait for each other where they meet.

#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct Position {
  unsigned int x;
};

static Position threadIdx, blockIdx;

namespace emulation {

constexpr std::size_t kStack = 256 * 1024;
constexpr int kWarp = 32;

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  bool done = false;
  unsigned int meetings = 0;
  double slots[2];
};

static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static void (*body)(void*);
static void* argument;
static const char* failure;

inline void start() {
  body(argument);
  fibers[threadIdx.x].done = true;
}

// All threads of the block get here before one goes on. A failure ends the block.
inline void meet() {
  Fiber& self = fibers[threadIdx.x];
  ++self.meetings;
  swapcontext(&self.context, &scheduler);
}

inline void run_block(unsigned int threads) {
  if (fibers.size() < threads) fibers = std::vector<Fiber>(threads);
  for (unsigned int thread = 0; thread < threads; ++thread) {
    Fiber& fiber = fibers[thread];
    fiber.done = false;
    fiber.meetings = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, start, 0);
  }
  // Forwards and backwards in turn: what depends on the order of threads is found.
  for (unsigned int round = 0, left = threads; left > 0 && !failure; ++round) {
    for (unsigned int place = 0; place < threads; ++place) {
      threadIdx.x = round % 2 ? threads - 1 - place : place;
      Fiber& fiber = fibers[threadIdx.x];
      if (fiber.done) continue;
      swapcontext(&scheduler, &fiber.context);
      if (fiber.done) --left;
      if (failure) break;
    }
  }
  for (unsigned int thread = 1; thread < threads && !failure; ++thread) {
    if (fibers[thread].meetings != fibers[0].meetings) failure = "threads meet unequally often";
  }
}

template <class... Parameters, std::size_t... kPlaces>
const char* launch(void (*kernel)(Parameters...), unsigned int grid, unsigned int block,
                   void** values, std::index_sequence<kPlaces...>) {
  auto call = [&] { kernel(*static_cast<Parameters*>(values[kPlaces])...); };
  body = [](void* function) { (*static_cast<decltype(call)*>(function))(); };
  argument = &call;
  failure = nullptr;
  for (blockIdx.x = 0; blockIdx.x < grid && !failure; ++blockIdx.x) run_block(block);
  return failure;
}

template <class... Parameters>
const char* launch(void (*kernel)(Parameters...), unsigned int grid, unsigned int block,
                   void** values) {
  return launch(kernel, grid, block, values, std::index_sequence_for<Parameters...>());
}

}  // namespace emulation

inline void __syncthreads() { emulation::meet(); }

template <class T>
T __shfl_xor_sync(unsigned int, T x, int distance, int width) {
  using emulation::fibers;
  const unsigned int parity = fibers[threadIdx.x].meetings % 2;
  const unsigned int self = threadIdx.x;
  std::memcpy(&fibers[self].slots[parity], &x, sizeof(T));
  emulation::meet();
  const unsigned int lane = self % width;
  const unsigned int other = self - lane + ((lane ^ distance) % width);
  T found;
  std::memcpy(&found, &fibers[other].slots[parity], sizeof(T));
  return found;
}

inline void __assertfail(const char* message, const char*, unsigned int, const char*, std::size_t) {
  emulation::failure = message;
  emulation::meet();
}

template <class To, class From>
To same_bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &x, sizeof(To));
  return bits;
}

inline float __int_as_float(int bits) { return same_bits<float>(bits); }
inline int __float_as_int(float x) { return same_bits<int>(x); }
inline double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

namespace hostjit {

// As cvt.rzi does: what does not fit is the nearest that does, and then loses its upper bits.
template <class To, class From>
To float_to_integer(From x) {
  if constexpr (sizeof(To) < 4) {
    return static_cast<To>(float_to_integer<int>(x));
  } else {
    const From limit = std::ldexp(From(1), 8 * sizeof(To) - 1);
    const To least = static_cast<To>(1ull << (8 * sizeof(To) - 1));
    if (x != x) return sizeof(To) == 8 ? least : To(0);
    if (x < -limit) return least;
    return x < limit ? static_cast<To>(x) : static_cast<To>(~least);
  }
}

struct f16;
struct bf16;
inline float widen(f16 stored);
inline f16 to_f16(float x);
inline bf16 to_bf16(float x);

}  // namespace hostjit
