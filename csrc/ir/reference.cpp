// SPDX-License-Identifier: Apache-2.0
#include "ir/reference.h"

#include "ir/attribute_text.h"
#include "ir/visitor.h"

namespace hostjit {
namespace {

std::string_view text_of(Access access) {
  switch (access) {
    case Access::kRead: return "read";
    case Access::kWrite: return "written";
    case Access::kReadWrite: return "read and written";
    case Access::kFree: return "freed";
    case Access::kMetadata: return "sizes and strides only";
  }
  throw_internal_error(__FILE__, __LINE__, "access out of range");
}

std::string_view text_of(ResultKind kind) {
  switch (kind) {
    case ResultKind::kAllocated: return "new memory";
    case ResultKind::kConstant: return "read-only memory of the program";
    case ResultKind::kAlias: return "the memory of the operand";
    case ResultKind::kOwned: return "memory that ATen owns";
    case ResultKind::kScalar: return "a scalar";
  }
  throw_internal_error(__FILE__, __LINE__, "result kind out of range");
}

std::string_view kind_of(bool) { return "bool"; }
std::string_view kind_of(int64_t) { return "integer"; }
std::string_view kind_of(double) { return "number"; }
std::string_view kind_of(const std::string&) { return "string"; }
std::string_view kind_of(const Literal&) { return "literal"; }
std::string_view kind_of(const std::vector<int64_t>&) { return "list of integers"; }
std::string_view kind_of(const Dim&) { return "integer or symbol"; }
std::string_view kind_of(const std::vector<Dim>&) { return "list of integers or symbols"; }
std::string_view kind_of(const std::vector<std::string>&) { return "list of strings"; }
std::string_view kind_of(const std::vector<Literal>&) { return "list of literals"; }
std::string kind_of(IndexOperation) {
  std::string words;
#define HOSTJIT_INDEX_WORD(enumerator, text) words += concat(words.empty() ? "" : ", ", text);
  HOSTJIT_FOR_EACH_INDEX_OPERATION(HOSTJIT_INDEX_WORD)
#undef HOSTJIT_INDEX_WORD
  return concat("one of ", words);
}

// Writes one table row per field.
struct FieldRows {
  std::string rows;

  void add(std::string_view name, std::string_view kind, std::string_view access,
           const std::string& default_value) {
    rows += concat("| `", name, "` | ", kind, " | ", access, " | ", default_value, " |\n");
  }
  void operand(std::string_view name, Value*, Access access) {
    add(name, "value", text_of(access), "required");
  }
  void optional_operand(std::string_view name, Value*, Access access) {
    add(name, "value or `none`", text_of(access), "`none`");
  }
  void operands(std::string_view name, const std::vector<Value*>&, Access access) {
    add(name, "list of values", text_of(access), "`[]`");
  }
  template <class T>
  void attribute(std::string_view name, const T& value, const T& default_value) {
    add(name, kind_of(value), "", concat("`", attribute_to_string(default_value), "`"));
  }
  void attribute(std::string_view name, const auto& value, Required) {
    add(name, kind_of(value), "", "required");
  }
  void result(std::string_view name, Value*, ResultKind kind) {
    add(name, "result", text_of(kind), "");
  }
  void results(std::string_view name, const std::vector<Value*>&, ResultKind kind) {
    add(name, "any number of results", text_of(kind), "");
  }
  void region(std::string_view name, const NestedRegion&) { add(name, "region", "", ""); }
};

}  // namespace

std::string op_reference() {
  std::string text;
#define HOSTJIT_APPEND_SECTION(type)                      \
  {                                                       \
    const Op op{OpVariant(std::in_place_type<type>), ""}; \
    FieldRows fields;                                     \
    visit_fields(op, fields);                             \
    text += op_section(op.info(), fields.rows);           \
  }
  const auto op_section = [](const OpInfo& info, const std::string& rows) {
    std::string section = concat("## ", info.name, "\n\n", info.doc, "\n\n");
    if (info.has_side_effect) {
      section += "Has an effect of its own: never removed, never reordered with its like.\n\n";
    }
    if (rows.empty()) return section + "No fields.\n\n";
    return section +
           concat("| Field | Kind | Memory | Default |\n| --- | --- | --- | --- |\n", rows, "\n");
  };
  HOSTJIT_FOR_EACH_OP(HOSTJIT_APPEND_SECTION)
#undef HOSTJIT_APPEND_SECTION
  text.pop_back();
  return text;
}

}  // namespace hostjit
