// SPDX-License-Identifier: Apache-2.0
#include "ir/type_parser.h"

#include "ir/literal_parser.h"

namespace hostjit {
namespace {

Device parse_device(TokenStream& tokens) {
  Token name = tokens.expect(TokenKind::kWord, "a device");
  if (tokens.take_if(':')) {
    name.text += concat(":", tokens.expect(TokenKind::kInteger, "a device index").text);
  }
  return with_position(name.position, [&] { return device_from_string(name.text); });
}

TensorType parse_tensor_type(TokenStream& tokens, TextPosition position) {
  tokens.expect('<');
  const Token dtype_name = tokens.expect(TokenKind::kWord, "a dtype");
  const DType dtype =
      with_position(dtype_name.position, [&] { return dtype_from_string(dtype_name.text); });
  tokens.expect(',');
  std::vector<Dim> dims = parse_dims(tokens);
  tokens.expect(',');
  std::optional<std::vector<Dim>> strides;
  if (tokens.take_if_word("strides")) {
    tokens.expect('=');
    strides = parse_dims(tokens);
    tokens.expect(',');
  }
  const Device device = parse_device(tokens);
  tokens.expect('>');
  return with_position(position, [&] {
    return TensorType::make(dtype, std::move(dims), std::move(strides), device);
  });
}

}  // namespace

Dim parse_dim(TokenStream& tokens) {
  if (tokens.at(TokenKind::kWord)) return Dim::make_symbol(tokens.take().text);
  const bool is_quoted = tokens.at(TokenKind::kString) && !tokens.current().text.empty();
  if (is_quoted) return Dim::make_symbol(tokens.take().text);
  if (tokens.at(TokenKind::kInteger)) return parse_integer(tokens);
  tokens.fail("a size or the name of a symbol");
}

std::vector<Dim> parse_dims(TokenStream& tokens) {
  std::vector<Dim> dims;
  tokens.expect('[');
  tokens.parse_list(']', [&] { dims.push_back(parse_dim(tokens)); });
  return dims;
}

Type parse_type(TokenStream& tokens) {
  constexpr std::string_view kExpected =
      "a type: tensor<dtype, [sizes], device>, index, f64, bool, stream or event";
  const TextPosition position = tokens.current().position;
  if (tokens.take_if_word("tensor")) return parse_tensor_type(tokens, position);
  if (tokens.take_if_word("index")) return IndexType{};
  if (tokens.take_if_word("f64")) return F64Type{};
  if (tokens.take_if_word("bool")) return BoolType{};
  if (tokens.take_if_word("stream")) return StreamType{};
  if (tokens.take_if_word("event")) return EventType{};
  tokens.fail(kExpected);
}

}  // namespace hostjit
