// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <variant>

#include "ir/aten_ops.h"
#include "ir/control_ops.h"
#include "ir/launch_ops.h"
#include "ir/math_ops.h"
#include "ir/memory_ops.h"
#include "ir/op_list.h"
#include "ir/profiling_ops.h"
#include "ir/shape_ops.h"
#include "ir/stream_ops.h"

namespace hostjit {

// What every struct of the op list provides (ir/op_list.h).
template <class T>
concept OpPayload = std::default_initializable<T> && std::copyable<T> &&
                    requires(const T& op, const OpVerifier& verifier) {
                      { T::kInfo } -> std::convertible_to<OpInfo>;
                      op.verify(verifier);
                    };

#define HOSTJIT_CHECK_PAYLOAD(type) static_assert(OpPayload<type>);
HOSTJIT_FOR_EACH_OP(HOSTJIT_CHECK_PAYLOAD)
#undef HOSTJIT_CHECK_PAYLOAD

// std::monostate is never a payload of a constructed op; it starts the comma-separated list.
#define HOSTJIT_PAYLOAD_ALTERNATIVE(type) , type
using OpVariant = std::variant<std::monostate HOSTJIT_FOR_EACH_OP(HOSTJIT_PAYLOAD_ALTERNATIVE)>;
#undef HOSTJIT_PAYLOAD_ALTERNATIVE

// One node of Host IR: the payload and the place in the user's source that it comes from.
struct Op {
  OpVariant payload;
  std::string location;  // "model.py:12", or empty

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&payload);
  }
  template <class T>
  T* get_if() {
    return std::get_if<T>(&payload);
  }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(payload);
  }

  const OpInfo& info() const;
  std::string_view name() const { return info().name; }
};

// The payload of a new op by its name in the text form, with the defaults of its fields. Throws
// Error that lists the valid names.
OpVariant make_payload(std::string_view name);

// "launch_kernel 'k0' (model.py:12)": how messages name an op.
std::string describe(const Op& op);

}  // namespace hostjit
