// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace hostjit {

// A compile-time argument of an operator call: the constants that an ATen schema accepts, and
// references to operands of the node it belongs to. Text forms:
//
//   none  true  7  1.5  "sum"  complex(1.0, -2.0)  dtype(f32)  device(cpu)  layout(strided)
//   memory_format(channels_last)  $0  [1, $1, none]
struct Literal {
  // A word of a closed vocabulary: kind is dtype, device, layout or memory_format.
  struct Symbol {
    std::string kind;
    std::string word;
    friend bool operator==(const Symbol&, const Symbol&) = default;
  };
  // The operand at this position of the node.
  struct Operand {
    int64_t index = 0;
    friend bool operator==(const Operand&, const Operand&) = default;
  };
  using List = std::vector<Literal>;
  using Variant = std::variant<std::monostate, bool, int64_t, double, std::complex<double>,
                               std::string, Symbol, Operand, List>;

  Variant value;

  // Two NaN literals of the same bits are equal, 0.0 and -0.0 are not.
  friend bool operator==(const Literal& a, const Literal& b);
};

std::string to_string(const Literal& literal);

// Shortest text that reads back as the same double; always has a '.', an 'e', "inf" or "nan".
std::string double_to_string(double value);

// `text` in double quotes, with \" \\ \n \t escapes.
std::string quoted(const std::string& text);

}  // namespace hostjit
