// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "bindings/tensor_guard.h"
#include "runtime/kept_tensors.h"

namespace hostjit {

// The output tensors of a specialization's last call, to be written again by its next one.
// Used under the GIL.
//
// They belong to the thread that called last: a call of another thread makes new ones, and so does
// one that begins while another is under way.
class ReusedOutputs {
 public:
  // Hands over the tensors that the next call, of a row of this id, may write: those of a call of
  // the same row that still are what was returned (type, sizes, strides, memory, no gradient), and
  // whose memory none of the call's inputs reads.
  KeptTensors take(uint64_t row, const at::Tensor* const* inputs, size_t num_inputs);
  // Takes over the tensors that a call returned.
  void put(uint64_t row, KeptTensors tensors);

 private:
  struct Seen {
    TensorGuard guard;
    const void* data;
    size_t storage_bytes;
  };

  KeptTensors tensors_;
  std::vector<Seen> seen_;  // of each
  unsigned long thread_ = 0;
  uint64_t row_ = 0;
};

}  // namespace hostjit
