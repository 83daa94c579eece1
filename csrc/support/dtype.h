// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

namespace hostjit {

// X(enumerator, text in Host IR, bytes per element, name in torch)
#define HOSTJIT_FOR_EACH_DTYPE(X)                    \
  X(kBool, "bool", 1, "bool")                        \
  X(kU8, "u8", 1, "uint8")                           \
  X(kI8, "i8", 1, "int8")                            \
  X(kU16, "u16", 2, "uint16")                        \
  X(kI16, "i16", 2, "int16")                         \
  X(kU32, "u32", 4, "uint32")                        \
  X(kI32, "i32", 4, "int32")                         \
  X(kU64, "u64", 8, "uint64")                        \
  X(kI64, "i64", 8, "int64")                         \
  X(kF16, "f16", 2, "float16")                       \
  X(kBF16, "bf16", 2, "bfloat16")                    \
  X(kF32, "f32", 4, "float32")                       \
  X(kF64, "f64", 8, "float64")                       \
  X(kC32, "c32", 4, "complex32")                     \
  X(kC64, "c64", 8, "complex64")                     \
  X(kC128, "c128", 16, "complex128")                 \
  X(kF8E4M3FN, "f8e4m3fn", 1, "float8_e4m3fn")       \
  X(kF8E5M2, "f8e5m2", 1, "float8_e5m2")             \
  X(kF8E4M3FNUZ, "f8e4m3fnuz", 1, "float8_e4m3fnuz") \
  X(kF8E5M2FNUZ, "f8e5m2fnuz", 1, "float8_e5m2fnuz") \
  X(kF8E8M0FNU, "f8e8m0fnu", 1, "float8_e8m0fnu")

// Element type of a tensor. Values are our own; the runtime maps them to c10::ScalarType.
enum class DType : uint8_t {
#define HOSTJIT_DTYPE_ENUMERATOR(enumerator, text, bytes, torch_name) enumerator,
  HOSTJIT_FOR_EACH_DTYPE(HOSTJIT_DTYPE_ENUMERATOR)
#undef HOSTJIT_DTYPE_ENUMERATOR
};

std::string_view to_string(DType dtype);

// Throws Error that lists the valid names.
DType dtype_from_string(std::string_view text);

int64_t size_in_bytes(DType dtype);

bool is_floating_point(DType dtype);
bool is_complex(DType dtype);

// Of the parts of complex numbers; any other dtype itself.
DType real_dtype(DType dtype);

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }

}  // namespace hostjit
