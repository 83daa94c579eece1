// SPDX-License-Identifier: Apache-2.0
#include "ir/printer.h"

#include "ir/attribute_text.h"
#include "ir/lexer.h"
#include "ir/visitor.h"
#include "support/hexadecimal.h"

namespace hostjit {
namespace {

std::string value_name(const Value* value) {
  return value ? concat("%", name_to_string(value->name())) : "none";
}

std::string values_text(const std::vector<Value*>& values) {
  std::string text;
  for (const Value* value : values) text += concat(text.empty() ? "" : ", ", value_name(value));
  return text;
}

// Collects "name=value, ..." of the fields and the results of one op.
struct FieldPrinter {
  std::string text;
  std::vector<const Value*> values;
  std::vector<std::pair<std::string_view, const Region*>> regions;

  void add(std::string_view name, const std::string& value) {
    text += concat(text.empty() ? "" : ", ", name, "=", value);
  }
  void operand(std::string_view name, const Value* value, Access) { add(name, value_name(value)); }
  void optional_operand(std::string_view name, const Value* value, Access) {
    if (value) add(name, value_name(value));
  }
  void operands(std::string_view name, const std::vector<Value*>& list, Access) {
    if (!list.empty()) add(name, concat("[", values_text(list), "]"));
  }
  void attribute(std::string_view name, const auto& value, const auto& default_value) {
    if (!(default_value == value)) add(name, attribute_to_string(value));
  }
  void result(std::string_view, const Value* value, ResultKind) { values.push_back(value); }
  void results(std::string_view, const std::vector<Value*>& list, ResultKind) {
    values.insert(values.end(), list.begin(), list.end());
  }
  void region(std::string_view name, const NestedRegion& region) {
    regions.emplace_back(name, &*region);
  }
};

std::string arena_text(const char* name, const ArenaPlan& arena) {
  if (arena == ArenaPlan{}) return "";
  if (arena.blocks > 0) return concat(" ", name, "(blocks=", arena.blocks, ")");
  return concat(" ", name, "(bytes=", arena.bytes, ", lower_bound=", arena.lower_bound,
                ", alignment=", arena.alignment, ")");
}

std::string arenas_text(const Program& program) {
  return arena_text("arena", program.arena()) + arena_text("device_arena", program.device_arena());
}

// " ptx(entry=\"scale_0\", parameters=[ptr, i32])" of a kernel with a signature.
std::string language_text(const Kernel& kernel) {
  const bool is_typed = has_signature(kernel);
  if (kernel.language == KernelLanguage::kLlvmIr && !is_typed) return "";
  const std::string function =
      concat(" ", to_string(kernel.language), "(entry=", quoted(kernel.entry));
  if (!is_typed) return function + ")";
  std::string types;
  for (const ParameterType type : kernel.parameters) {
    types += concat(types.empty() ? "" : ", ", to_string(type));
  }
  return concat(function, ", parameters=[", types, "])");
}

// The text as it is when the raw form can hold it; bytes as hexadecimal digits, paths and addresses
// on a line.
std::string kernel_text(const Kernel& kernel) {
  if (kernel.language == KernelLanguage::kCubin) {
    return concat("\"\"\"\n", hexadecimal(kernel.text), "\"\"\"");
  }
  const std::string& text = kernel.text;
  const bool is_line =
      kernel.language == KernelLanguage::kSharedLibrary || is_address(kernel.language);
  const bool raw = !is_line && text.find("\"\"\"") == std::string::npos && !text.ends_with('"');
  return raw ? concat("\"\"\"\n", text, "\"\"\"") : quoted(text);
}

constexpr size_t kLineWidth = 100;

std::string inputs_text(const std::vector<Value*>& inputs, std::string_view separator) {
  std::string text;
  for (const Value* input : inputs) {
    text +=
        concat(text.empty() ? "" : separator, value_name(input), ": ", to_string(input->type()));
  }
  return text;
}

std::string region_text(const Region& region, bool with_locations, const std::string& indent);

// The lines after the first, of the regions, begin with `indent`.
std::string op_text(const Op& op, bool with_location, const std::string& indent) {
  FieldPrinter fields;
  visit_fields(op, fields);
  std::string names;
  std::string types;
  for (const Value* value : fields.values) {
    names += concat(names.empty() ? "" : ", ", value_name(value));
    types += concat(types.empty() ? "" : ", ", value ? to_string(value->type()) : "none");
  }
  std::string text;
  if (!names.empty()) text += names + " = ";
  text += concat(op.name(), "(", fields.text, ")");
  if (!types.empty()) text += " : " + types;
  if (with_location && !op.location.empty()) text += concat(" loc(", quoted(op.location), ")");
  for (const auto& [name, region] : fields.regions) {
    text += concat(" ", name, " {\n");
    text += region_text(*region, with_location, indent + "  ");
    text += concat(indent, "}");
  }
  return text;
}

std::string region_text(const Region& region, bool with_locations, const std::string& indent) {
  std::string text;
  for (const auto& op : region) text += concat(indent, op_text(*op, with_locations, indent), "\n");
  return text;
}

std::string program_text(const Program& program, bool is_portable) {
  const bool with_locations = !is_portable;
  std::string text = concat("program @", name_to_string(program.name()), "(",
                            inputs_text(program.inputs(), ", "), ")", arenas_text(program), " {\n");
  if (text.size() > kLineWidth) {
    text = concat("program @", name_to_string(program.name()), "(\n    ",
                  inputs_text(program.inputs(), ",\n    "), ")", arenas_text(program), " {\n");
  }
  if (!program.init().empty()) {
    text += "  init {\n";
    text += region_text(program.init(), with_locations, "    ");
    text += "  }\n";
  }
  text += region_text(program.body(), with_locations, "  ");
  text += program.outputs().empty() ? "  return\n"
                                    : concat("  return ", values_text(program.outputs()), "\n");
  text += "}\n";
  for (const auto& [name, kernel] : program.kernels()) {
    const bool is_omitted = is_portable && is_address(kernel.language);
    text += concat("\nkernel @", name_to_string(name), language_text(kernel), " ",
                   is_omitted ? "" : kernel_text(kernel), "\n");
  }
  return text;
}

}  // namespace

std::string to_string(const Op& op) { return op_text(op, /*with_location=*/true, ""); }

std::string to_string(const Program& program) {
  return program_text(program, /*is_portable=*/false);
}

std::string portable_text(const Program& program) {
  return program_text(program, /*is_portable=*/true);
}

}  // namespace hostjit
