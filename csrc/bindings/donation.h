// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/abi.h"

namespace hostjit {

// Lets one call of a program release the tensors that it donates: those of inputs with a
// Deallocate, as soon as it no longer needs them.
class Donation {
 public:
  // `inputs`, one per input of the program, are those that the call was given.
  Donation(Frame* frame, at::Tensor* inputs) : frame_(frame) { frame->donated = inputs; }
  ~Donation() { frame_->donated = nullptr; }
  Donation(const Donation&) = delete;
  Donation& operator=(const Donation&) = delete;

 private:
  Frame* frame_;
};

}  // namespace hostjit
