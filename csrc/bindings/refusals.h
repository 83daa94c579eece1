// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace hostjit {

// Calls one after the other that nothing answers, and that the owner leaves to eager: that is found
// out by looking at all there is, for many times what a small function takes. After some of them
// only every 16th, 32nd, ... 128th call asks.
class Refusals {
 public:
  // Counts a call, and tells whether to run it eagerly without asking.
  bool skip() {
    ++calls_;
    if (left_ == 0) [[likely]]
      return false;
    --left_;
    return true;
  }
  // This call was refused.
  void note() {
    const bool follows = calls_ == last_ + skipped_ + 1;
    last_ = calls_;
    in_a_row_ = follows ? in_a_row_ + 1 : 1;
    if (!follows) skipped_ = 0;
    if (in_a_row_ < kPatience) return;
    skipped_ = std::clamp(2 * skipped_ + 1, kPatience - 1, kMostSkipped);
    left_ = skipped_;
  }

 private:
  static constexpr uint64_t kPatience = 16;
  static constexpr uint64_t kMostSkipped = 127;

  uint64_t calls_ = 0;
  uint64_t last_ = 0;  // the number of the call that was refused last
  uint64_t in_a_row_ = 0;
  uint64_t skipped_ = 0;  // after it
  uint64_t left_ = 0;     // of these
};

}  // namespace hostjit
