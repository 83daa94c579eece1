// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace hostjit {

// Calls that nothing answers, and that the owner leaves to eager: that is found out by looking at
// all there is, for many times what a small function takes. After some of them only every 16th,
// 32nd, ... 128th such call asks. Where they come one after the other, it is not looked whether
// something answers those between, either.
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
  // Tells, of a call that nothing answers, whether to ask.
  bool may_ask() {
    if (unasked_ == 0) return true;
    --unasked_;
    return false;
  }
  // The owner had an answer.
  void forget() {
    refused_ = 0;
    most_unasked_ = 0;
  }
  // This call was refused.
  void note() {
    ++refused_;
    const bool follows = calls_ == last_ + skipped_ + 1;
    last_ = calls_;
    in_a_row_ = follows ? in_a_row_ + 1 : 1;
    if (!follows) skipped_ = 0;
    if (in_a_row_ >= kPatience) {
      left_ = skipped_ = more(skipped_);
    } else if (refused_ >= kPatience) {
      unasked_ = most_unasked_ = more(most_unasked_);
    }
  }

 private:
  static constexpr uint64_t kPatience = 16;
  static constexpr uint64_t kMostSkipped = 127;

  static uint64_t more(uint64_t count) {
    return std::clamp(2 * count + 1, kPatience - 1, kMostSkipped);
  }

  uint64_t calls_ = 0;
  uint64_t last_ = 0;  // the number of the call that was refused last
  uint64_t in_a_row_ = 0;
  uint64_t skipped_ = 0;  // after it
  uint64_t left_ = 0;     // of these
  uint64_t refused_ = 0;  // since the last answer
  uint64_t most_unasked_ = 0;
  uint64_t unasked_ = 0;  // of those that are still to come
};

}  // namespace hostjit
