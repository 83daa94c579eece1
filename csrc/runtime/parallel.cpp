// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "runtime/externs.h"
#include "runtime/thread_count.h"
#include "runtime/torch_symbols.h"

namespace hostjit {
namespace {

// The interface of GCC's OpenMP library, which Intel's and LLVM's offer too. PyTorch's own copy is
// used, so that its threads are; a build of PyTorch without OpenMP runs in one thread.
struct OpenMp {
  void (*parallel)(void (*work)(void*), void* data, unsigned num_threads, unsigned flags);
  int (*thread_num)();
  int (*num_threads)();

  static const OpenMp& get() {
    static const OpenMp kLibrary{
        find_in_torch<decltype(OpenMp::parallel)>("GOMP_parallel"),
        find_in_torch<decltype(OpenMp::thread_num)>("omp_get_thread_num"),
        find_in_torch<decltype(OpenMp::num_threads)>("omp_get_num_threads"),
    };
    return kLibrary;
  }
  bool is_there() const { return parallel && thread_num && num_threads; }
};

// A child process does not have the threads that OpenMP keeps for the next time: GCC's would wait
// for them forever.
std::atomic<bool> threads_are_lost{false};

void notice_forks() {
  static const int kRegistered =
      pthread_atfork(nullptr, nullptr, [] { threads_are_lost.store(true); });
  (void)kRegistered;
}

struct Work {
  int64_t num_items;
  RangeFunction range;
  void* const* arguments;
  const OpenMp* library;
};

// Parts that begin at whole cache lines of most types, when there is enough to do.
int64_t items_per_thread(int64_t num_items, int64_t num_threads) {
  constexpr int64_t kLine = 64;
  const int64_t items = (num_items + num_threads - 1) / num_threads;
  return items < 16 * kLine ? items : (items + kLine - 1) / kLine * kLine;
}

void run_part(void* data) {
  const Work& work = *static_cast<const Work*>(data);
  const int64_t items = items_per_thread(work.num_items, work.library->num_threads());
  const int64_t begin = work.library->thread_num() * items;
  const int64_t end = std::min(begin + items, work.num_items);
  if (begin < end) work.range(begin, end, work.arguments);
}

}  // namespace

size_t thread_count() { return static_cast<size_t>(std::max(at::get_num_threads(), 1)); }

extern "C" {

void hostjit_parallel_for(int64_t num_items, int64_t grain, RangeFunction range,
                          void* const* arguments) noexcept {
  const int64_t num_parts = num_items / std::max<int64_t>(grain, 1);
  const int64_t num_threads = std::min<int64_t>(at::get_num_threads(), num_parts);
  const OpenMp& library = OpenMp::get();
  if (num_threads <= 1 || threads_are_lost.load(std::memory_order_relaxed) || !library.is_there() ||
      at::in_parallel_region()) {
    range(0, num_items, arguments);
    return;
  }
  notice_forks();
  Work work{num_items, range, arguments, &library};
  library.parallel(&run_part, &work, static_cast<unsigned>(num_threads), /*flags=*/0);
}

}  // extern "C"

}  // namespace hostjit
