// SPDX-License-Identifier: Apache-2.0
#include "support/dtype.h"

#include <array>
#include <string>

#include "support/check.h"

namespace hostjit {
namespace {

struct DTypeFacts {
  DType dtype;
  std::string_view text;
  int64_t bytes;
};

constexpr auto kFacts = std::to_array<DTypeFacts>({
#define HOSTJIT_DTYPE_FACTS(enumerator, text, bytes, torch_name) {DType::enumerator, text, bytes},
    HOSTJIT_FOR_EACH_DTYPE(HOSTJIT_DTYPE_FACTS)
#undef HOSTJIT_DTYPE_FACTS
});

const DTypeFacts& facts(DType dtype) { return kFacts[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view to_string(DType dtype) { return facts(dtype).text; }

int64_t size_in_bytes(DType dtype) { return facts(dtype).bytes; }

DType dtype_from_string(std::string_view text) {
  std::string valid;
  for (const DTypeFacts& entry : kFacts) {
    if (entry.text == text) return entry.dtype;
    valid += valid.empty() ? "" : ", ";
    valid += entry.text;
  }
  throw_error(concat("unknown dtype '", text, "', expected one of: ", valid));
}

bool is_floating_point(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64 || dtype >= DType::kF8E4M3FN;
}

bool is_complex(DType dtype) { return real_dtype(dtype) != dtype; }

DType real_dtype(DType dtype) {
  switch (dtype) {
    case DType::kC32: return DType::kF16;
    case DType::kC64: return DType::kF32;
    case DType::kC128: return DType::kF64;
    default: return dtype;
  }
}

}  // namespace hostjit
