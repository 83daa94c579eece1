// SPDX-License-Identifier: Apache-2.0
#include "ir/token_stream.h"

namespace hostjit {

Token TokenStream::take() {
  Token token = std::move(current_);
  current_ = lexer_.next();
  return token;
}

bool TokenStream::take_if(char punctuation) {
  if (!at_punctuation(punctuation)) return false;
  take();
  return true;
}

bool TokenStream::take_if_word(std::string_view word) {
  if (!at_word(word)) return false;
  take();
  return true;
}

Token TokenStream::expect(TokenKind kind, std::string_view expected) {
  if (!at(kind)) fail(expected);
  return take();
}

void TokenStream::expect(char punctuation) {
  if (!take_if(punctuation)) fail(concat("'", punctuation, "'"));
}

void TokenStream::expect_word(std::string_view word) {
  if (!take_if_word(word)) fail(concat("'", word, "'"));
}

void TokenStream::fail(std::string_view expected) const {
  throw_at(current_.position, concat("expected ", expected, ", found ", describe(current_)));
}

}  // namespace hostjit
