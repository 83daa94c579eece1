// SPDX-License-Identifier: Apache-2.0
#include "ir/lexer.h"

#include <algorithm>

#include "support/check.h"
#include "support/literal.h"

namespace hostjit {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_word_start(c) || is_digit(c); }
bool is_name(char c) { return is_word(c) || c == '.' || c == '-'; }

}  // namespace

void throw_at(TextPosition position, const std::string& message) {
  throw_error(concat("line ", position.line, ", column ", position.column, ": ", message));
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd: return "the end of the text";
    case TokenKind::kString: return "a string";
    case TokenKind::kValueName: return concat("%", name_to_string(token.text));
    case TokenKind::kSymbolName: return concat("@", name_to_string(token.text));
    case TokenKind::kOperand: return concat("$", token.text);
    case TokenKind::kWord:
    case TokenKind::kInteger:
    case TokenKind::kReal:
    case TokenKind::kPunctuation: return concat("'", token.text, "'");
  }
  throw_internal_error(__FILE__, __LINE__, "token kind out of range");
}

std::string name_to_string(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, is_name) ? name : quoted(name);
}

void Lexer::advance() {
  if (text_[offset_++] == '\n') {
    ++position_.line;
    position_.column = 1;
  } else {
    ++position_.column;
  }
}

void Lexer::skip_blanks() {
  while (!at_end()) {
    const char c = peek();
    if (c == '/' && peek(1) == '/') {
      while (!at_end() && peek() != '\n') advance();
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      advance();
    } else {
      return;
    }
  }
}

Token Lexer::next() {
  skip_blanks();
  Token token;
  token.position = position_;
  if (at_end()) return token;
  const char c = peek();
  if (is_word_start(c)) {
    token.kind = TokenKind::kWord;
    take_word(token.text);
  } else if (is_digit(c) || c == '-') {
    take_number(token);
  } else if (c == '"') {
    take_string(token);
  } else if (c == '%' || c == '@') {
    take_name(token);
  } else if (c == '$') {
    token.kind = TokenKind::kOperand;
    advance();
    while (is_digit(peek())) {
      token.text += peek();
      advance();
    }
    if (token.text.empty()) throw_at(token.position, "expected a number after '$'");
  } else if (std::string_view("()[]{}<>=,:.").find(c) != std::string_view::npos) {
    token.kind = TokenKind::kPunctuation;
    token.text = c;
    advance();
  } else {
    const bool printable = c > ' ' && c <= '~';
    throw_at(token.position,
             printable ? concat("unexpected character '", c, "'")
                       : concat("unexpected byte ", static_cast<int>(static_cast<uint8_t>(c))));
  }
  return token;
}

void Lexer::take_word(std::string& out) {
  while (is_word(peek())) {
    out += peek();
    advance();
  }
}

void Lexer::take_number(Token& token) {
  const auto take_digits = [&] {
    const size_t before = token.text.size();
    while (is_digit(peek())) {
      token.text += peek();
      advance();
    }
    if (token.text.size() == before) {
      throw_at(position_, concat("expected a digit after '", token.text, "'"));
    }
  };
  const auto take = [&] {
    token.text += peek();
    advance();
  };
  token.kind = TokenKind::kInteger;
  if (peek() == '-') take();
  if (is_word_start(peek())) {
    token.kind = TokenKind::kReal;
    take_word(token.text);
    if (token.text != "-inf" && token.text != "-nan") {
      throw_at(token.position, concat("expected a number, found '", token.text, "'"));
    }
    return;
  }
  take_digits();
  if (peek() == '.') {
    token.kind = TokenKind::kReal;
    take();
    take_digits();
  }
  if (peek() == 'e' || peek() == 'E') {
    token.kind = TokenKind::kReal;
    take();
    if (peek() == '+' || peek() == '-') take();
    take_digits();
  }
  if (is_word(peek())) {
    throw_at(position_, concat("unexpected '", peek(), "' after the number ", token.text));
  }
}

void Lexer::take_string(Token& token) {
  token.kind = TokenKind::kString;
  if (peek(1) == '"' && peek(2) == '"') {
    take_raw_string(token);
    return;
  }
  advance();
  while (!at_end() && peek() != '"' && peek() != '\n') {
    char c = peek();
    if (c == '\\') {
      const TextPosition escape = position_;
      advance();
      c = peek();
      if (c == 'n') {
        c = '\n';
      } else if (c == 't') {
        c = '\t';
      } else if (c != '"' && c != '\\') {
        throw_at(escape, "unknown escape in a string, expected \\\" \\\\ \\n or \\t");
      }
    }
    token.text += c;
    advance();
  }
  if (peek() != '"') throw_at(token.position, "unterminated string");
  advance();
}

void Lexer::take_raw_string(Token& token) {
  for (int i = 0; i < 3; ++i) advance();
  size_t end = text_.find("\"\"\"", offset_);
  if (end == std::string_view::npos) throw_at(token.position, "unterminated \"\"\" string");
  // A newline right after the opening quotes is layout.
  if (peek() == '\n') advance();
  token.text = text_.substr(offset_, end - offset_);
  while (offset_ < end + 3) advance();
}

void Lexer::take_name(Token& token) {
  token.kind = peek() == '%' ? TokenKind::kValueName : TokenKind::kSymbolName;
  const char sign = peek();
  advance();
  if (peek() == '"') {
    Token quoted_name;
    quoted_name.position = position_;
    take_string(quoted_name);
    token.text = std::move(quoted_name.text);
    if (token.kind == TokenKind::kValueName && token.text.empty()) {
      throw_at(token.position, "expected a name after '%'");
    }
    return;
  }
  while (is_name(peek())) {
    token.text += peek();
    advance();
  }
  if (token.text.empty()) throw_at(token.position, concat("expected a name after '", sign, "'"));
}

}  // namespace hostjit
