// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hostjit {

// Where a token starts; both count from 1, columns in bytes.
struct TextPosition {
  int64_t line = 1;
  int64_t column = 1;
};

enum class TokenKind {
  kEnd,
  kWord,         // allocate, f32, true, inf
  kInteger,      // -7
  kReal,         // 1.5, 1e-3, -inf, -nan
  kString,       // "a\n" or """raw""", unescaped
  kValueName,    // %h or %"any text", without the sign
  kSymbolName,   // @k0 or @"any text", without the sign
  kOperand,      // $3, without the sign
  kPunctuation,  // one of ( ) [ ] { } < > = , : .
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  TextPosition position;
};

// "line 3, column 7: ..." as an Error.
[[noreturn]] void throw_at(TextPosition position, const std::string& message);

// How messages name a token: "'allocate'", "%h", "the end of the text".
std::string describe(const Token& token);

// Splits Host IR text into tokens, one at a time. Blanks and // comments are skipped.
class Lexer {
 public:
  // Borrows `text`.
  explicit Lexer(std::string_view text) : text_(text) {}

  // The next token; kEnd for ever after the last. Throws Error at the place of a malformed token.
  Token next();

 private:
  bool at_end() const { return offset_ >= text_.size(); }
  char peek(size_t ahead = 0) const {
    return offset_ + ahead < text_.size() ? text_[offset_ + ahead] : '\0';
  }
  void advance();
  void skip_blanks();
  void take_word(std::string& out);
  void take_number(Token& token);
  void take_string(Token& token);
  void take_raw_string(Token& token);
  void take_name(Token& token);

  std::string_view text_;
  size_t offset_ = 0;
  TextPosition position_;
};

// The name after % or @: as it is when it lexes as one word, otherwise quoted.
std::string name_to_string(const std::string& name);

}  // namespace hostjit
