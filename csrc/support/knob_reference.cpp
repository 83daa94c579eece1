// SPDX-License-Identifier: Apache-2.0
#include "support/check.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

std::string_view variable_text(KnobKind kind) {
  return kind == KnobKind::kSwitch ? "HOSTJIT_ENABLE / HOSTJIT_DISABLE" : "HOSTJIT_DUMP";
}

std::string_view argument_text(KnobArgument argument) {
  switch (argument) {
    case KnobArgument::kNone: return "";
    case KnobArgument::kInteger: return "integer";
    case KnobArgument::kNames: return "names";
    case KnobArgument::kDirectory: return "directory";
  }
  HOSTJIT_ICHECK(false, "argument kind ", static_cast<int>(argument));
  return "";
}

// "on", "off", "on (8)".
std::string state_text(bool on, const std::vector<std::string>& arguments) {
  std::string text = on ? "on" : "off";
  for (size_t i = 0; i < arguments.size(); ++i) {
    text += concat(i == 0 ? " (" : ", ", arguments[i], i + 1 == arguments.size() ? ")" : "");
  }
  return text;
}

KnobRow make_row(KnobKind kind, std::string_view name, KnobArgument argument, bool default_on,
                 std::string_view default_argument, std::string_view help) {
  std::vector<std::string> default_arguments;
  if (!default_argument.empty()) default_arguments.emplace_back(default_argument);
  return {.variable = std::string(variable_text(kind)),
          .name = std::string(name),
          .argument = std::string(argument_text(argument)),
          .default_value = state_text(default_on, default_arguments),
          .help = std::string(help),
          .current = {}};
}

constexpr std::string_view kUserCache = "$XDG_CACHE_HOME/hostjit";

// The rows without what holds now.
std::vector<KnobRow> static_rows() {
  std::vector<KnobRow> rows;
#define HOSTJIT_KNOB_ROW(enumerator, kind, name, argument, on, text, help) \
  rows.push_back(make_row(KnobKind::kind, name, KnobArgument::argument, on, text, help));
  HOSTJIT_FOR_EACH_KNOB(HOSTJIT_KNOB_ROW)
#undef HOSTJIT_KNOB_ROW
  rows.push_back({.variable = "HOSTJIT_DUMP_DIR",
                  .name = {},
                  .argument = "directory",
                  .default_value = "stderr",
                  .help = "Where dumps go, as numbered files.",
                  .current = {}});
  rows.push_back({.variable = "HOSTJIT_CACHE_DIR",
                  .name = {},
                  .argument = "directory",
                  .default_value = std::string(kUserCache),
                  .help = "Where compiled code is kept. Nobody else may be able to write there.",
                  .current = {}});
  return rows;
}

constexpr std::string_view kIntroduction = R"(# Knobs

`HOSTJIT_ENABLE`, `HOSTJIT_DISABLE` and `HOSTJIT_DUMP` each hold names between commas; a name may
have arguments: `HOSTJIT_DISABLE=host_ir_jit,passes(plan_memory)`. They are read once, at the first
use. `hostjit.knobs(enable=..., disable=..., dump=..., dump_directory=..., cache_directory=...)` sets
the same for a `with` block. An unknown name is an error. `python -m hostjit knobs` prints this table with what holds now.

| Variable | Name | Argument | Default | Meaning |
| --- | --- | --- | --- | --- |
)";

}  // namespace

std::vector<KnobRow> knob_rows() {
  std::vector<KnobRow> rows = static_rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].name.empty()) continue;
    const auto knob = static_cast<Knob>(i);
    rows[i].current = state_text(is_enabled(knob), knob_arguments(knob));
  }
  const auto or_default = [](const std::string& directory, std::string_view otherwise) {
    return directory.empty() ? std::string(otherwise) : directory;
  };
  rows[rows.size() - 2].current = or_default(dump_directory(Knob::kHostIrJit), "stderr");
  rows.back().current = or_default(cache_directory(), kUserCache);
  return rows;
}

std::string knob_reference_page() {
  const auto code = [](const std::string& text) { return text.empty() ? "" : "`" + text + "`"; };
  std::string page(kIntroduction);
  for (const KnobRow& row : static_rows()) {
    page += concat("| `", row.variable, "` | ", code(row.name), " | ", row.argument, " | ",
                   row.default_value, " | ", row.help, " |\n");
  }
  return page;
}

}  // namespace hostjit
