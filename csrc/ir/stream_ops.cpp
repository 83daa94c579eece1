// SPDX-License-Identifier: Apache-2.0
#include "ir/stream_ops.h"

namespace hostjit {
namespace {

void require_stream(const OpVerifier& verifier, std::string_view name, const Value* value) {
  if (value) verifier.require_scalar(name, value, {"stream"});
}

}  // namespace

void CurrentStream::verify(const OpVerifier& verifier) const {
  require_stream(verifier, "result", result);
}

void PoolStream::verify(const OpVerifier& verifier) const {
  require_stream(verifier, "result", result);
}

void SetStream::verify(const OpVerifier& verifier) const {
  require_stream(verifier, "stream", stream);
}

void RecordEvent::verify(const OpVerifier& verifier) const {
  require_stream(verifier, "stream", stream);
  verifier.require_scalar("result", result, {"event"});
}

void WaitEvent::verify(const OpVerifier& verifier) const {
  verifier.require_scalar("event", event, {"event"});
  verifier.require(event->producer() != nullptr, "event", "is an input",
                   "the result of a record_event");
  require_stream(verifier, "stream", stream);
}

void Synchronize::verify(const OpVerifier& verifier) const {
  require_stream(verifier, "stream", stream);
}

}  // namespace hostjit
