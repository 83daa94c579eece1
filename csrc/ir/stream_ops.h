// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/access.h"
#include "ir/op_verifier.h"

namespace hostjit {

// Streams and events of the program's CUDA device.
//
// A call begins on PyTorch's current stream, the caller's. Work goes to the stream that is current
// where it stands: launches without a stream of their own, copies, products, ATen calls, and memory
// that they allocate. At the end of a region what was current before it is current again; at the
// end of the body, and when the call fails, the caller's stream is, and it waits for every stream
// of the pool that the call used.

struct CurrentStream {
  static constexpr OpInfo kInfo{"current_stream", "The stream that work goes to here.",
                                /*has_side_effect=*/true, /*orders_streams=*/true};
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.result("result", self.result, ResultKind::kScalar);
  }
  void verify(const OpVerifier& verifier) const;
};

// Each of these ops has its own stream, the same one at every call of a frame.
struct PoolStream {
  static constexpr OpInfo kInfo{
      "pool_stream", "A stream of PyTorch's pool, which waits for the work of the current one.",
      /*has_side_effect=*/true, /*orders_streams=*/true};
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.result("result", self.result, ResultKind::kScalar);
  }
  void verify(const OpVerifier& verifier) const;
};

struct SetStream {
  static constexpr OpInfo kInfo{"set_stream", "Makes a stream the current one.",
                                /*has_side_effect=*/true, /*orders_streams=*/true};
  Value* stream = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("stream", self.stream, Access::kRead);
  }
  void verify(const OpVerifier& verifier) const;
};

// Without a stream, the ops that follow mean the current one.
struct RecordEvent {
  static constexpr OpInfo kInfo{"record_event", "The work that a stream has got so far.",
                                /*has_side_effect=*/true, /*orders_streams=*/true};
  Value* stream = nullptr;
  Value* result = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.optional_operand("stream", self.stream, Access::kRead);
    visit.result("result", self.result, ResultKind::kScalar);
  }
  void verify(const OpVerifier& verifier) const;
};

struct WaitEvent {
  static constexpr OpInfo kInfo{"wait_event", "Later work of a stream waits for an event.",
                                /*has_side_effect=*/true, /*orders_streams=*/true};
  Value* event = nullptr;
  Value* stream = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.operand("event", self.event, Access::kRead);
    visit.optional_operand("stream", self.stream, Access::kRead);
  }
  void verify(const OpVerifier& verifier) const;
};

struct Synchronize {
  static constexpr OpInfo kInfo{"synchronize", "The host waits for the work of a stream.",
                                /*has_side_effect=*/true, /*orders_streams=*/true};
  Value* stream = nullptr;

  static void fields(auto& self, auto& visit) {
    visit.optional_operand("stream", self.stream, Access::kRead);
  }
  void verify(const OpVerifier& verifier) const;
};

}  // namespace hostjit
