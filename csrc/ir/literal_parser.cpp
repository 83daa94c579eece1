// SPDX-License-Identifier: Apache-2.0
#include "ir/literal_parser.h"

#include <charconv>
#include <limits>

#include "support/device.h"
#include "support/dtype.h"

namespace hostjit {
namespace {

constexpr int kMostNesting = 64;

int64_t integer_from_token(const Token& token) {
  int64_t value = 0;
  const char* end = token.text.data() + token.text.size();
  const auto result = std::from_chars(token.text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    throw_at(token.position, concat("integer ", token.text, " is out of range"));
  }
  return value;
}

double real_from_token(const Token& token) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  if (token.text == "inf") return kInfinity;
  if (token.text == "-inf") return -kInfinity;
  if (token.text == "nan") return kNaN;
  if (token.text == "-nan") return -kNaN;
  double value = 0;
  const char* end = token.text.data() + token.text.size();
  const auto result = std::from_chars(token.text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    throw_at(token.position, concat("number ", token.text, " is out of range"));
  }
  return value;
}

bool at_real_word(const TokenStream& tokens) {
  return tokens.at_word("inf") || tokens.at_word("nan");
}

Literal parse_word_literal(TokenStream& tokens) {
  if (tokens.take_if_word("none")) return {};
  if (tokens.take_if_word("complex")) {
    tokens.expect('(');
    const double real = parse_real(tokens);
    tokens.expect(',');
    const double imaginary = parse_real(tokens);
    tokens.expect(')');
    return {std::complex<double>(real, imaginary)};
  }
  for (const std::string_view kind : {"dtype", "device", "layout", "memory_format"}) {
    if (!tokens.take_if_word(kind)) continue;
    tokens.expect('(');
    Token word = tokens.expect(TokenKind::kWord, concat("a ", kind));
    if (tokens.take_if(':')) {
      word.text += concat(":", tokens.expect(TokenKind::kInteger, "a device index").text);
    }
    with_position(word.position, [&] {
      if (kind == "dtype") dtype_from_string(word.text);
      if (kind == "device") device_from_string(word.text);
    });
    tokens.expect(')');
    return {Literal::Symbol{std::string(kind), word.text}};
  }
  return {parse_bool(tokens)};
}

}  // namespace

bool parse_bool(TokenStream& tokens) {
  if (tokens.take_if_word("true")) return true;
  if (tokens.take_if_word("false")) return false;
  tokens.fail("true or false");
}

int64_t parse_integer(TokenStream& tokens) {
  return integer_from_token(tokens.expect(TokenKind::kInteger, "an integer"));
}

double parse_real(TokenStream& tokens) {
  const bool number = tokens.at(TokenKind::kInteger) || tokens.at(TokenKind::kReal);
  if (!number && !at_real_word(tokens)) tokens.fail("a number");
  return real_from_token(tokens.take());
}

Literal parse_literal(TokenStream& tokens, int depth) {
  if (tokens.at(TokenKind::kInteger)) return {parse_integer(tokens)};
  if (tokens.at(TokenKind::kReal) || at_real_word(tokens)) return {parse_real(tokens)};
  if (tokens.at(TokenKind::kString)) return {tokens.take().text};
  if (tokens.at(TokenKind::kOperand)) {
    return {Literal::Operand{integer_from_token(tokens.take())}};
  }
  if (tokens.at_punctuation('[')) {
    if (depth == kMostNesting) tokens.fail(concat("at most ", kMostNesting, " lists in a list"));
    tokens.take();
    Literal::List list;
    tokens.parse_list(']', [&] { list.push_back(parse_literal(tokens, depth + 1)); });
    return {std::move(list)};
  }
  const bool known = tokens.at_word("none") || tokens.at_word("true") || tokens.at_word("false") ||
                     tokens.at_word("complex") || tokens.at_word("dtype") ||
                     tokens.at_word("device") || tokens.at_word("layout") ||
                     tokens.at_word("memory_format");
  if (!known)
    tokens.fail("a literal such as 1, 1.5, true, none, \"text\", $0, dtype(f32) or [1, 2]");
  return parse_word_literal(tokens);
}

}  // namespace hostjit
