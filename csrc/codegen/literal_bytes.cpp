// SPDX-License-Identifier: Apache-2.0
#include "codegen/literal_bytes.h"

#include <llvm/ADT/APFloat.h>
#include <llvm/ADT/APInt.h>
#include <llvm/Config/llvm-config.h>

#include <complex>
#include <cstring>
#include <string>

#include "support/check.h"

namespace hostjit {
namespace {

const llvm::fltSemantics& float_semantics(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kC32: return llvm::APFloat::IEEEhalf();
    case DType::kBF16: return llvm::APFloat::BFloat();
    case DType::kF32:
    case DType::kC64: return llvm::APFloat::IEEEsingle();
    case DType::kF64:
    case DType::kC128: return llvm::APFloat::IEEEdouble();
    case DType::kF8E4M3FN: return llvm::APFloat::Float8E4M3FN();
    case DType::kF8E5M2: return llvm::APFloat::Float8E5M2();
    case DType::kF8E4M3FNUZ: return llvm::APFloat::Float8E4M3FNUZ();
    case DType::kF8E5M2FNUZ: return llvm::APFloat::Float8E5M2FNUZ();
#if LLVM_VERSION_MAJOR >= 20
    case DType::kF8E8M0FNU: return llvm::APFloat::Float8E8M0FNU();
#endif
    default: throw_error(concat("this LLVM has no literals of dtype ", dtype));
  }
}

void append(std::vector<std::byte>& bytes, const llvm::APInt& bits) {
  for (unsigned position = 0; position < bits.getBitWidth(); position += 8) {
    bytes.push_back(static_cast<std::byte>(bits.extractBitsAsZExtValue(8, position)));
  }
}

void append_float(std::vector<std::byte>& bytes, double value, DType dtype) {
  llvm::APFloat number(value);
  bool loses_info = false;
  number.convert(float_semantics(dtype), llvm::APFloat::rmNearestTiesToEven, &loses_info);
  append(bytes, number.bitcastToAPInt());
}

std::complex<double> as_complex(const Literal& literal) {
  if (const auto* value = std::get_if<bool>(&literal.value)) return *value ? 1.0 : 0.0;
  if (const auto* value = std::get_if<int64_t>(&literal.value)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<double>(&literal.value)) return *value;
  const auto* value = std::get_if<std::complex<double>>(&literal.value);
  HOSTJIT_CHECK(value != nullptr, "literal ", to_string(literal), " is not a number");
  return *value;
}

int64_t as_integer(const Literal& literal) {
  if (const auto* value = std::get_if<bool>(&literal.value)) return *value;
  if (const auto* value = std::get_if<int64_t>(&literal.value)) return *value;
  return static_cast<int64_t>(as_complex(literal).real());
}

}  // namespace

std::vector<std::byte> literal_bytes(const Literal& literal, DType dtype) {
  std::vector<std::byte> bytes;
  if (is_complex(dtype)) {
    append_float(bytes, as_complex(literal).real(), dtype);
    append_float(bytes, as_complex(literal).imag(), dtype);
  } else if (is_floating_point(dtype)) {
    append_float(bytes, as_complex(literal).real(), dtype);
  } else if (dtype == DType::kBool) {
    bytes.push_back(std::byte{as_complex(literal) != 0.0});
  } else {
    const auto bits = static_cast<unsigned>(8 * size_in_bytes(dtype));
    append(bytes, llvm::APInt(64, static_cast<uint64_t>(as_integer(literal))).trunc(bits));
  }
  return bytes;
}

}  // namespace hostjit
