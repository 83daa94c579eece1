// SPDX-License-Identifier: Apache-2.0
#include "support/literal.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "support/check.h"

namespace hostjit {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

}  // namespace

bool operator==(const Literal& a, const Literal& b) {
  if (a.value.index() != b.value.index()) return false;
  if (const double* x = std::get_if<double>(&a.value)) {
    return same_bits(*x, std::get<double>(b.value));
  }
  if (const auto* x = std::get_if<std::complex<double>>(&a.value)) {
    const auto& y = std::get<std::complex<double>>(b.value);
    return same_bits(x->real(), y.real()) && same_bits(x->imag(), y.imag());
  }
  return a.value == b.value;
}

std::string double_to_string(double value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), result.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      default: out += c;
    }
  }
  return out + "\"";
}

std::string to_string(const Literal& literal) {
  struct Text {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return double_to_string(value); }
    std::string operator()(const std::complex<double>& value) const {
      return concat("complex(", double_to_string(value.real()), ", ",
                    double_to_string(value.imag()), ")");
    }
    std::string operator()(const std::string& value) const { return quoted(value); }
    std::string operator()(const Literal::Symbol& value) const {
      return concat(value.kind, "(", value.word, ")");
    }
    std::string operator()(const Literal::Operand& value) const { return concat("$", value.index); }
    std::string operator()(const Literal::List& list) const {
      std::string text = "[";
      for (size_t i = 0; i < list.size(); ++i) text += (i ? ", " : "") + to_string(list[i]);
      return text + "]";
    }
  };
  return std::visit(Text{}, literal.value);
}

}  // namespace hostjit
