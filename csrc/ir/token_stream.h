// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "ir/lexer.h"
#include "support/check.h"

namespace hostjit {

// The tokens of a text with one token of lookahead.
class TokenStream {
 public:
  // Borrows `text`.
  explicit TokenStream(std::string_view text) : lexer_(text), current_(lexer_.next()) {}

  const Token& current() const { return current_; }
  bool at(TokenKind kind) const { return current_.kind == kind; }
  // True at this word or punctuation.
  bool at(TokenKind kind, std::string_view text) const {
    return current_.kind == kind && current_.text == text;
  }
  bool at_punctuation(char c) const { return at(TokenKind::kPunctuation, std::string_view(&c, 1)); }
  bool at_word(std::string_view word) const { return at(TokenKind::kWord, word); }

  Token take();
  // Takes the token and returns true if it is the one named.
  bool take_if(char punctuation);
  bool take_if_word(std::string_view word);

  // Takes the token or throws "expected <...>, found <...>".
  Token expect(TokenKind kind, std::string_view expected);
  void expect(char punctuation);
  void expect_word(std::string_view word);

  [[noreturn]] void fail(std::string_view expected) const;

  // Calls `item` for each item of a comma-separated list up to `close`, which is taken.
  template <class F>
  void parse_list(char close, F item) {
    if (take_if(close)) return;
    do {
      item();
    } while (take_if(','));
    expect(close);
  }

 private:
  Lexer lexer_;
  Token current_;
};

// Runs `f`; an Error that it throws gets the position in front.
template <class F>
auto with_position(TextPosition position, F f) {
  try {
    return f();
  } catch (const Error& error) {
    throw_at(position, error.what());
  }
}

}  // namespace hostjit
