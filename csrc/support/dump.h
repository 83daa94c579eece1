// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "support/knobs.h"

namespace hostjit {

// What one dump shows; the file is <number>_<program>_<stage>.<extension>.
struct DumpItem {
  Knob knob;                   // of kind kDump
  std::string_view program;    // name of the program
  std::string_view stage;      // "captured", "after_plan_memory", "main"
  std::string_view extension;  // "hir", "ll", "s"
};

// Writes `text` as a numbered file of the dump directory, which is made when missing, or to
// stderr under a heading when there is none. Does nothing when the knob is off: ask is_enabled
// first where the text costs something. Throws Error when the file can't be written. Numbers
// count through the process, so that file names sort by time. Any thread.
void dump(const DumpItem& item, std::string_view text);

// Says that the text is that of the dump before: "(unchanged)".
void dump_unchanged(const DumpItem& item);

}  // namespace hostjit
