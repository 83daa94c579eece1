// SPDX-License-Identifier: Apache-2.0
#include "ir/field_parser.h"

#include <unordered_set>

#include "ir/literal_parser.h"
#include "ir/type_parser.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

void parse_attribute(TokenStream& tokens, bool& out) { out = parse_bool(tokens); }
void parse_attribute(TokenStream& tokens, int64_t& out) { out = parse_integer(tokens); }
void parse_attribute(TokenStream& tokens, double& out) { out = parse_real(tokens); }
void parse_attribute(TokenStream& tokens, std::string& out) {
  out = tokens.expect(TokenKind::kString, "a string").text;
}
void parse_attribute(TokenStream& tokens, Literal& out) { out = parse_literal(tokens); }
void parse_attribute(TokenStream& tokens, std::vector<int64_t>& out) {
  tokens.expect('[');
  tokens.parse_list(']', [&] { out.push_back(parse_integer(tokens)); });
}
void parse_attribute(TokenStream& tokens, Dim& out) { out = parse_dim(tokens); }
void parse_attribute(TokenStream& tokens, std::vector<Dim>& out) { out = parse_dims(tokens); }
void parse_attribute(TokenStream& tokens, std::vector<std::string>& out) {
  tokens.expect('[');
  tokens.parse_list(']', [&] { parse_attribute(tokens, out.emplace_back()); });
}
void parse_attribute(TokenStream& tokens, std::vector<Literal>& out) {
  tokens.expect('[');
  tokens.parse_list(']', [&] { out.push_back(parse_literal(tokens, /*depth=*/1)); });
}
void parse_attribute(TokenStream& tokens, IndexOperation& out) {
  const Token word = tokens.expect(TokenKind::kWord, "an index operation");
  out = with_position(word.position, [&] { return index_operation_from_string(word.text); });
}

// Reads the value of the field of one name; other fields are left alone.
struct FieldReader {
  TokenStream& tokens;
  const ValueLookup& lookup;
  std::string_view wanted;
  bool found = false;
  std::string names = "";

  bool is_wanted(std::string_view name) {
    names += concat(names.empty() ? "" : ", ", name);
    const bool match = name == wanted;
    found |= match;
    return match;
  }
  Value* read_value() {
    const Token token = tokens.expect(TokenKind::kValueName, "a value such as %x");
    return lookup(token);
  }

  void operand(std::string_view name, Value*& value, Access) {
    if (is_wanted(name)) value = read_value();
  }
  void optional_operand(std::string_view name, Value*& value, Access) {
    if (!is_wanted(name) || tokens.take_if_word("none")) return;
    if (!tokens.at(TokenKind::kValueName)) tokens.fail("a value such as %x or none");
    value = read_value();
  }
  void operands(std::string_view name, std::vector<Value*>& values, Access) {
    if (!is_wanted(name)) return;
    tokens.expect('[');
    tokens.parse_list(']', [&] { values.push_back(read_value()); });
  }
  void attribute(std::string_view name, auto& value, const auto&) {
    if (is_wanted(name)) parse_attribute(tokens, value);
  }
  void result(std::string_view, Value*, ResultKind) {}
  void results(std::string_view, const std::vector<Value*>&, ResultKind) {}
  void region(std::string_view, const NestedRegion&) {}
};

// Throws at a field that has no default and was not given.
struct MissingFields {
  const std::unordered_set<std::string>& given;
  TextPosition position;
  std::string_view op_name;

  void require(std::string_view name, std::string_view expected) const {
    if (given.contains(std::string(name))) return;
    throw_at(position, concat(op_name, ": '", name, "' is missing, expected ", expected));
  }
  void operand(std::string_view name, Value*, Access) const { require(name, "a value"); }
  void optional_operand(std::string_view, Value*, Access) const {}
  void operands(std::string_view, const std::vector<Value*>&, Access) const {}
  void attribute(std::string_view, const auto&, const auto&) const {}
  void attribute(std::string_view name, const auto&, Required) const {
    require(name, concat(name, "=..."));
  }
  void result(std::string_view, Value*, ResultKind) const {}
  void results(std::string_view, const std::vector<Value*>&, ResultKind) const {}
  void region(std::string_view, const NestedRegion&) const {}
};

// Hands out `values` to the results.
struct ResultSetter {
  const std::vector<Value*>& values;
  TextPosition position;
  std::string_view op_name;
  bool any_number = false;
  size_t num_results = 0;

  void operand(std::string_view, Value*, Access) {}
  void optional_operand(std::string_view, Value*, Access) {}
  void operands(std::string_view, const std::vector<Value*>&, Access) {}
  void attribute(std::string_view, const auto&, const auto&) {}
  void result(std::string_view, Value*& value, ResultKind) {
    if (num_results < values.size()) value = values[num_results];
    ++num_results;
  }
  void results(std::string_view, std::vector<Value*>& list, ResultKind) {
    list = values;
    any_number = true;
  }
  void region(std::string_view, const NestedRegion&) {}
};

}  // namespace

void parse_fields(TokenStream& tokens, OpVariant& payload, const ValueLookup& lookup,
                  TextPosition op_position) {
  Op op{std::move(payload), ""};
  std::unordered_set<std::string> given;
  tokens.expect('(');
  tokens.parse_list(')', [&] {
    const Token name = tokens.expect(TokenKind::kWord, "a field or ')'");
    if (!given.insert(name.text).second) {
      throw_at(name.position, concat(op.name(), ": field '", name.text, "' is given twice"));
    }
    tokens.expect('=');
    FieldReader reader{.tokens = tokens, .lookup = lookup, .wanted = name.text};
    visit_fields(op, reader);
    if (!reader.found) {
      throw_at(name.position, concat(op.name(), ": unknown field '", name.text, "', expected ",
                                     reader.names.empty() ? "none" : "one of: ", reader.names));
    }
  });
  const MissingFields missing{given, op_position, op.name()};
  visit_fields(op, missing);
  payload = std::move(op.payload);
}

void set_results(OpVariant& payload, const std::vector<Value*>& values, TextPosition op_position) {
  Op op{std::move(payload), ""};
  ResultSetter setter{.values = values, .position = op_position, .op_name = op.name()};
  visit_fields(op, setter);
  payload = std::move(op.payload);
  if (setter.any_number || setter.num_results == values.size()) return;
  throw_at(op_position, concat(setter.op_name, ": number of results is ", values.size(),
                               ", expected ", setter.num_results));
}

}  // namespace hostjit
