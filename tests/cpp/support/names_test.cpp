// SPDX-License-Identifier: Apache-2.0
// Names of dtypes and devices, and the two kinds of errors.
#include <gtest/gtest.h>

#include "support/check.h"
#include "support/device.h"
#include "support/dtype.h"

namespace hostjit {
namespace {

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(DType, NamesRoundTrip) {
#define HOSTJIT_EXPECT_DTYPE(enumerator, text, bytes, torch_name) \
  EXPECT_EQ(to_string(DType::enumerator), text);                  \
  EXPECT_EQ(dtype_from_string(text), DType::enumerator);          \
  EXPECT_EQ(size_in_bytes(DType::enumerator), bytes);
  HOSTJIT_FOR_EACH_DTYPE(HOSTJIT_EXPECT_DTYPE)
#undef HOSTJIT_EXPECT_DTYPE
  EXPECT_EQ(message_of([] { dtype_from_string("float"); }).substr(0, 60),
            "unknown dtype 'float', expected one of: bool, u8, i8, u16, i");
}

TEST(DType, KnowsItsKind) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF64, DType::kF8E8M0FNU}) {
    EXPECT_TRUE(is_floating_point(dtype)) << dtype;
    EXPECT_FALSE(is_complex(dtype)) << dtype;
  }
  for (const DType dtype : {DType::kBool, DType::kU64, DType::kC32, DType::kC128}) {
    EXPECT_FALSE(is_floating_point(dtype)) << dtype;
    EXPECT_EQ(is_complex(dtype), dtype >= DType::kC32) << dtype;
  }
}

TEST(Device, NamesRoundTrip) {
  for (const char* text : {"cpu", "cuda:0", "cuda:7", "meta:0"}) {
    EXPECT_EQ(to_string(device_from_string(text)), text);
  }
  EXPECT_EQ(to_string(device_from_string("cuda")), "cuda:0");
  EXPECT_EQ(message_of([] { device_from_string("tpu"); }),
            "unknown device 'tpu', expected cpu, cuda:<index> or meta:<index>");
  EXPECT_EQ(message_of([] { device_from_string("cuda:x"); }), "malformed device index in 'cuda:x'");
  EXPECT_EQ(message_of([] { device_from_string("cuda:128"); }),
            "malformed device index in 'cuda:128'");
  EXPECT_EQ(message_of([] { device_from_string("cuda:-1"); }),
            "malformed device index in 'cuda:-1'");
}

TEST(Check, TellsTheCallersMistakesFromOurs) {
  EXPECT_EQ(message_of([] { HOSTJIT_CHECK(1 > 2, "one is ", 1); }), "one is 1");
  EXPECT_EQ(message_of([] { HOSTJIT_CHECK(2 > 1, "not reached"); }), "no error");
  try {
    HOSTJIT_ICHECK(1 > 2, "one is ", 1);
    ADD_FAILURE() << "no error";
  } catch (const InternalError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("names_test.cpp:"), std::string::npos) << message;
    EXPECT_TRUE(message.ends_with("internal error: one is 1")) << message;
  }
}

}  // namespace
}  // namespace hostjit
