// SPDX-License-Identifier: Apache-2.0
#include "ir/parser.h"

#include <utility>

#include "ir/field_parser.h"
#include "ir/literal_parser.h"
#include "ir/type_parser.h"
#include "ir/verification_error.h"
#include "ir/verifier.h"
#include "ir/visitor.h"
#include "support/hexadecimal.h"

namespace hostjit {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(text), program_("") {}

  Program parse() {
    tokens_.expect_word("program");
    const Token name = tokens_.expect(TokenKind::kSymbolName, "a name such as @main");
    program_ = Program(name.text);
    parse_inputs();
    if (tokens_.take_if_word("arena")) program_.set_arena(parse_arena("arena"));
    if (tokens_.take_if_word("device_arena")) {
      program_.set_device_arena(parse_arena("device_arena"));
    }
    tokens_.expect('{');
    parse_body();
    while (!tokens_.at(TokenKind::kEnd)) parse_kernel();
    verify(name.position);
    return std::move(program_);
  }

 private:
  void verify(TextPosition program_position) const {
    try {
      verify_program(program_);
    } catch (const VerificationError& error) {
      throw_at(positions_.at(&error.op()), error.what());
    } catch (const Error& error) {
      throw_at(program_position, error.what());
    }
  }

  void parse_inputs() {
    tokens_.expect('(');
    tokens_.parse_list(')', [&] {
      const Token name = tokens_.expect(TokenKind::kValueName, "an input such as %x or ')'");
      tokens_.expect(':');
      const Type type = parse_type(tokens_);
      require_new(name);
      values_[name.text] = program_.add_input(type, name.text);
    });
  }

  ArenaPlan parse_arena(const std::string& arena) {
    tokens_.expect('(');
    ArenaPlan plan;
    tokens_.parse_list(')', [&] {
      const Token name = tokens_.expect(TokenKind::kWord, concat("a field of ", arena, " or ')'"));
      tokens_.expect('=');
      if (name.text == "blocks") {
        plan.blocks = parse_integer(tokens_);
      } else if (name.text == "bytes") {
        plan.bytes = parse_integer(tokens_);
      } else if (name.text == "lower_bound") {
        plan.lower_bound = parse_integer(tokens_);
      } else if (name.text == "alignment") {
        plan.alignment = parse_integer(tokens_);
      } else {
        throw_at(name.position,
                 concat(arena, ": unknown field '", name.text,
                        "', expected one of: blocks, bytes, lower_bound, alignment"));
      }
    });
    return plan;
  }

  void parse_body() {
    if (tokens_.take_if_word("init")) {
      tokens_.expect('{');
      while (!tokens_.take_if('}')) parse_op(program_.init(), "an op or '}'");
    }
    while (!tokens_.take_if_word("return")) parse_op(program_.body(), "an op or 'return'");
    std::vector<Value*> outputs;
    if (!tokens_.at_punctuation('}')) {
      do {
        outputs.push_back(
            find(tokens_.expect(TokenKind::kValueName, "an output such as %x or '}'")));
      } while (tokens_.take_if(','));
    }
    tokens_.expect('}');
    program_.set_outputs(std::move(outputs));
  }

  void parse_op(Region& region, std::string_view expected) {
    std::vector<Token> names;
    if (tokens_.at(TokenKind::kValueName)) {
      do {
        names.push_back(tokens_.expect(TokenKind::kValueName, "a result such as %x"));
      } while (tokens_.take_if(','));
      tokens_.expect('=');
    }
    const Token name =
        tokens_.expect(TokenKind::kWord, names.empty() ? expected : "the name of an op");
    OpVariant payload = with_position(name.position, [&] { return make_payload(name.text); });
    parse_fields(tokens_, payload, [&](const Token& token) { return find(token); }, name.position);
    set_results(payload, parse_results(names, name), name.position);
    auto op = std::make_unique<Op>(Op{std::move(payload), parse_location()});
    for_each_region(*op, [&](std::string_view region_name, NestedRegion& nested) {
      parse_nested(region_name, *nested);
    });
    with_position(name.position, [&] { verify_op(*op); });
    for_each_result(*op, [&](Value* value, ResultKind) { value->set_producer(op.get()); });
    positions_[op.get()] = name.position;
    region.push_back(std::move(op));
  }

  void parse_nested(std::string_view name, Region& region) {
    tokens_.expect_word(name);
    tokens_.expect('{');
    while (!tokens_.take_if('}')) parse_op(region, "an op or '}'");
  }

  // Reads ": type, ..." and makes one value per name.
  std::vector<Value*> parse_results(const std::vector<Token>& names, const Token& op_name) {
    std::vector<Type> types;
    if (tokens_.take_if(':')) {
      do {
        types.push_back(parse_type(tokens_));
      } while (tokens_.take_if(','));
    }
    if (types.size() != names.size()) {
      throw_at(op_name.position, concat(op_name.text, ": number of result types is ", types.size(),
                                        ", expected ", names.size()));
    }
    std::vector<Value*> results;
    for (size_t i = 0; i < names.size(); ++i) {
      require_new(names[i]);
      results.push_back(program_.add_value(types[i], names[i].text));
      values_[names[i].text] = results.back();
    }
    return results;
  }

  std::string parse_location() {
    if (!tokens_.take_if_word("loc")) return "";
    tokens_.expect('(');
    const Token location = tokens_.expect(TokenKind::kString, "a string such as \"model.py:12\"");
    tokens_.expect(')');
    return location.text;
  }

  void parse_kernel() {
    if (!tokens_.take_if_word("kernel")) tokens_.fail("'kernel' or the end of the text");
    const Token name = tokens_.expect(TokenKind::kSymbolName, "a name such as @k0");
    Kernel kernel{name.text, ""};
    if (tokens_.at(TokenKind::kWord)) parse_kernel_language(kernel);
    const Token text =
        tokens_.expect(TokenKind::kString, "the text of the kernel, \"\"\"...\"\"\"");
    kernel.text = text.text;
    if (kernel.language == KernelLanguage::kCubin) {
      with_position(text.position, [&] { kernel.text = bytes_of_hexadecimal(text.text); });
    }
    if (is_address(kernel.language)) {
      throw_at(text.position,
               concat(describe(name), " is a ", to_string(kernel.language),
                      " of the process that printed it, expected code: llvm_ir, ptx or cubin"));
    }
    if (program_.kernels().contains(name.text)) {
      throw_at(name.position, concat(describe(name), " is defined twice"));
    }
    program_.add_kernel(std::move(kernel));
  }

  // ptx(entry="scale_0", parameters=[ptr, i32]), shared_library(entry="scale_0") or llvm_ir
  void parse_kernel_language(Kernel& kernel) {
    const Token language = tokens_.take();
    kernel.language = with_position(language.position,
                                    [&] { return kernel_language_from_string(language.text); });
    if (kernel.language == KernelLanguage::kLlvmIr && !tokens_.at_punctuation('(')) return;
    tokens_.expect('(');
    tokens_.expect_word("entry");
    tokens_.expect('=');
    kernel.entry = tokens_.expect(TokenKind::kString, "the name of a function in the code").text;
    if (has_signature(kernel)) parse_parameters(kernel);
    tokens_.expect(')');
  }

  void parse_parameters(Kernel& kernel) {
    tokens_.expect(',');
    tokens_.expect_word("parameters");
    tokens_.expect('=');
    tokens_.expect('[');
    tokens_.parse_list(']', [&] {
      const Token type = tokens_.expect(TokenKind::kWord, "the type of a parameter or ']'");
      kernel.parameters.push_back(
          with_position(type.position, [&] { return parameter_type_from_string(type.text); }));
    });
  }

  void require_new(const Token& name) const {
    if (values_.contains(name.text)) {
      throw_at(name.position, concat(describe(name), " is defined twice"));
    }
  }

  Value* find(const Token& name) const {
    const auto found = values_.find(name.text);
    if (found == values_.end()) {
      throw_at(name.position, concat(describe(name), " is not defined"));
    }
    return found->second;
  }

  TokenStream tokens_;
  Program program_;
  std::unordered_map<std::string, Value*> values_;
  std::unordered_map<const Op*, TextPosition> positions_;
};

}  // namespace

Program parse_program(std::string_view text) { return Parser(text).parse(); }

Type type_from_string(std::string_view text) {
  TokenStream tokens(text);
  Type type = parse_type(tokens);
  if (!tokens.at(TokenKind::kEnd)) tokens.fail("the end of the text");
  return type;
}

}  // namespace hostjit
