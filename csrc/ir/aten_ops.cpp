// SPDX-License-Identifier: Apache-2.0
#include "ir/aten_ops.h"

#include <algorithm>
#include <array>

namespace hostjit {
namespace {

constexpr int kMostNesting = 64;

bool is_identifier(std::string_view text) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && !(text[0] >= '0' && text[0] <= '9') && std::ranges::all_of(text, is_word);
}

// "ns::name" or "ns::name.overload".
bool is_schema_name(std::string_view text) {
  const size_t colons = text.find("::");
  if (colons == std::string_view::npos || !is_identifier(text.substr(0, colons))) return false;
  const std::string_view name = text.substr(colons + 2);
  const size_t dot = name.find('.');
  if (!is_identifier(name.substr(0, dot))) return false;
  return dot == std::string_view::npos || is_identifier(name.substr(dot + 1));
}

class ArgumentVerifier {
 public:
  ArgumentVerifier(const OpVerifier& verifier, int64_t num_operands)
      : verifier_(verifier), num_operands_(num_operands) {}

  void check(const std::string& place, const Literal& literal, int depth) const {
    if (const auto* operand = std::get_if<Literal::Operand>(&literal.value)) {
      if (operand->index < 0 || operand->index >= num_operands_) {
        verifier_.fail(place, concat("is ", to_string(literal)),
                       concat("one of ", num_operands_, " operands"));
      }
    } else if (const auto* symbol = std::get_if<Literal::Symbol>(&literal.value)) {
      check_symbol(place, *symbol);
    } else if (const auto* list = std::get_if<Literal::List>(&literal.value)) {
      if (depth >= kMostNesting) {
        verifier_.fail(place, "is nested too deeply", concat("at most ", kMostNesting, " levels"));
      }
      for (size_t i = 0; i < list->size(); ++i) {
        check(concat(place, "[", i, "]"), (*list)[i], depth + 1);
      }
    }
  }

 private:
  void check_symbol(const std::string& place, const Literal::Symbol& symbol) const {
    constexpr auto kKinds =
        std::to_array<std::string_view>({"dtype", "device", "layout", "memory_format"});
    const std::string found = concat("is ", symbol.kind, "(", symbol.word, ")");
    if (std::ranges::find(kKinds, symbol.kind) == kKinds.end()) {
      verifier_.fail(place, found, "dtype, device, layout or memory_format");
    }
    try {
      if (symbol.kind == "dtype") dtype_from_string(symbol.word);
      if (symbol.kind == "device") device_from_string(symbol.word);
    } catch (const Error& error) {
      verifier_.fail(place, found, concat("a known word: ", error.what()));
    }
    if (symbol.kind != "device" && !is_identifier(symbol.word)) {
      verifier_.fail(place, found, "a word");
    }
  }

  const OpVerifier& verifier_;
  int64_t num_operands_;
};

}  // namespace

void AtenCall::verify(const OpVerifier& verifier) const {
  if (!is_schema_name(target)) {
    verifier.fail("target", concat("is ", quoted(target)),
                  "the form ns::name or ns::name.overload");
  }
  const auto num_inputs = static_cast<int64_t>(inputs.size());
  const auto num_operands = num_inputs + static_cast<int64_t>(mutated.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->is_tensor()) continue;
    verifier.require_scalar({"inputs", i}, inputs[i], {"index", "f64", "bool"});
  }
  for (size_t i = 0; i < mutated.size(); ++i) {
    verifier.require_tensor({"mutated", i}, mutated[i]);
  }
  const ArgumentVerifier argument_verifier(verifier, num_operands);
  for (size_t i = 0; i < arguments.size(); ++i) {
    argument_verifier.check(concat("arguments[", i, "]"), arguments[i], /*depth=*/0);
  }
  for (size_t i = 0; i < aliases.size(); ++i) {
    const int64_t operand = aliases[i];
    const bool in_range = operand >= 0 && operand < num_operands;
    if (!in_range || (operand < num_inputs && !inputs[operand]->is_tensor())) {
      verifier.fail({"aliases", i}, concat("is ", operand),
                    concat("a tensor among ", num_operands, " operands"));
    }
  }
  const auto num_returned = static_cast<int64_t>(results.size() + absent.size());
  for (size_t i = 0; i < absent.size(); ++i) {
    const int64_t least = i == 0 ? 0 : absent[i - 1] + 1;
    if (absent[i] < least || absent[i] >= num_returned) {
      verifier.fail({"absent", i}, concat("is ", absent[i]),
                    concat("a position from ", least, " on, below ", num_returned));
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    verifier.require_tensor({"results", i}, results[i]);
  }
}

std::vector<const Value*> AtenCall::returned() const {
  std::vector<const Value*> returned(results.begin(), results.end());
  for (const int64_t position : absent) returned.insert(returned.begin() + position, nullptr);
  return returned;
}

}  // namespace hostjit
